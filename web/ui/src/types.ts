// Answers of derated (docs/api.md); what is not known is absent or null.
export type Maybe<T> = T | null | undefined;

/** Used and saved, as derated reckons it: the page adds nothing up. */
export interface Saved {
  since_unix_seconds?: number;
  energy_joules: number; // all that was used
  governed_joules: number; // of it, while a saving was estimated
  saved_joules?: Maybe<number>;
  saved_low_joules?: Maybe<number>; // of 90 %
  saved_high_joules?: Maybe<number>;
  energy_saving_ratio?: Maybe<number>; // saved / (all that was used + saved)
  energy_saving_low_ratio?: Maybe<number>;
  energy_saving_high_ratio?: Maybe<number>;
  governed_saving_ratio?: Maybe<number>; // of the governed part alone
}
export interface Tenant {
  key: string;
  pid?: number;
  process?: string;
  user?: string;
  job?: string;
  container?: string;
  namespace?: string; // the pod's
  pod?: string;
  instance?: string;
  power_watts?: Maybe<number>;
  sigma_watts?: Maybe<number>;
  share_ratio?: Maybe<number>;
  memory_bytes?: Maybe<number>; // absent: the driver does not report it
  energy_joules: number; // since derated counts it
  seconds?: number; // for which it has been counted
}
/** Of the card, read every 5 s; what the driver does not report is absent. */
export interface Card {
  age_seconds?: number;
  memory_used_bytes?: number;
  memory_total_bytes?: number;
  pcie_generation?: number; // of the link now: an idle link is slower
  pcie_lanes?: number;
  pcie_most_generation?: number;
  pcie_most_lanes?: number;
  pcie_tx_bytes_per_second?: number;
  pcie_rx_bytes_per_second?: number;
  fan_ratio?: number; // of its highest speed
  encoder_ratio?: number;
  decoder_ratio?: number;
  ecc_corrected_errors?: number; // since the driver was loaded
  ecc_uncorrected_errors?: number;
  xid?: number; // the last of the card since derated opened the GPU; without one, of a program
  xid_text?: string;
  xid_unix_seconds?: number;
  xids?: number; // how many since then
}
export interface Gpu {
  index: number;
  uuid: string;
  name: string;
  simulated?: boolean;
  policy?: string;
  dry_run?: boolean;
  rule?: string;
  reason?: string;
  trouble?: string;
  error?: string;
  read_age_seconds?: number; // absent: it was never read
  stale?: boolean; // it was not read when it was due
  asked_clock_mhz?: number;
  set_power_limit_watts?: number;
  sm_clock_mhz?: number;
  highest_sm_clock_mhz?: number;
  gpu_utilisation_ratio?: number;
  memory_utilisation_ratio?: number;
  power_watts?: number;
  factory_power_limit_watts?: number;
  temperature_celsius?: number;
  expected_performance_ratio?: number;
  promised_performance_ratio?: number;
  promise?: "kept" | "below" | "broken" | "not known"; // absent: nothing is promised
  promise_below_seconds?: number;
  attention?: string; // what an operator should know first; absent: nothing
  saved?: Saved;
  work?: string;
  assigned?: { by: string; who?: string; since_unix_seconds?: number };
  card?: Card;
  attribution?: {
    unallocated_watts?: number;
    energy_joules: number;
    seconds?: number; // of the time whose energy is known
    lost_seconds?: number;
    reason?: string; // why something is missing
    tenants: Tenant[];
  };
}
export interface Forecast {
  delta_ratio: number;
  clock_mhz: number;
  saving_ratio: number;
  saving_low_ratio: number;
  saving_high_ratio: number;
  loss_ratio: number;
  loss_low_ratio: number;
  loss_high_ratio: number;
}
export interface Forecasts {
  policy?: string;
  now_delta_ratio?: number;
  promise_from?: string;
  why?: string; // there are none
  unconfirmed_seconds?: number;
  forecasts: Forecast[];
}
export interface Advice {
  finding: string;
  title: string;
  certainty: string; // sure or likely
  lost_ratio: number;
  evidence: string;
  effect: string;
  tries: string[];
  page: string;
}
export interface AdviceAnswer {
  uuid: string;
  watched_seconds: number;
  wanted_seconds: number;
  working_ratio?: number; // absent: too few readings yet
  activity_counters: boolean;
  advice: Advice[];
}
/** An engine that serves a language model, as `GET /v1/services` has it. */
export interface Service {
  name: string;
  engine?: string;
  promise: string[]; // "itl p99 <= 50 ms"
  promise_state?: string; // kept, broken, not known; absent: nothing is promised
  trouble?: string;
  age_seconds?: number; // of its newest metrics
  running?: number;
  waiting?: number;
  figures?: {
    window_seconds?: number;
    tokens_per_second?: number;
    itl_p50_at_most_seconds?: number;
    itl_p99_at_most_seconds?: number;
    ttft_p99_at_most_seconds?: number;
    late_ratio?: number;
    late_by_clock_ratio?: number;
    joules_per_token?: number;
  };
  gpus: { index: number; uuid: string }[];
}
export interface Status {
  host?: string;
  time_unix_seconds?: number;
  paused: boolean;
  asleep?: boolean;
  role?: string; // what who asks may do
  gpus: Gpu[];
  services?: Service[];
}
export interface Setting {
  key: string;
  value: string; // as TOML; empty: none
}
export interface DerateEvent {
  id: number;
  time_unix_seconds: number;
  event: string;
  severity: "info" | "warning" | "error";
  gpu?: string;
  gpu_index?: number;
  message: string;
  count?: number; // of how many events it is
  first_unix_seconds?: number; // of several
  gpu_indices?: number[]; // of several
}
/** Folded: a line may be of several events; the counts are of all events of the time, listed or not. */
export interface EventsAnswer {
  events: DerateEvent[]; // ascending by id
  total?: number;
  warnings?: number;
  errors?: number;
}
export interface SavingsLine {
  key: string;
  index?: number;
  sum: Saved;
}
export interface Savings {
  from_unix_seconds: number;
  to_unix_seconds: number;
  first_unix_seconds?: number;
  known_ratio?: Maybe<number>; // of the time of these GPUs
  total: Saved;
  lines: SavingsLine[];
}
export type Column = Maybe<Maybe<number>[]>;
export interface Series {
  gpu: string;
  policy?: string;
  begin_unix_seconds: number[];
  covered_ratio: number[];
  power_watts: Column;
  sm_clock_mhz: Column;
  asked_clock_mhz: Column;
  gpu_utilisation_ratio: Column;
  temperature_most_celsius: Column;
  performance_ratio: Column;
  promised_performance_ratio?: Column;
}
export interface History {
  first_unix_seconds?: Maybe<number>; // of all that is kept
  from_unix_seconds: number;
  to_unix_seconds: number;
  step_seconds: number;
  series: Series[];
}
export interface Decision {
  time_unix_seconds: number;
  policy?: string;
  source?: string;
  who?: string;
  rule?: string;
  reason?: string;
  bound?: string;
  asked_clock_mhz?: number;
  sm_clock_mhz?: number;
  expected_performance_ratio?: number;
  promised_performance_ratio?: number;
}
export interface Why {
  at_unix_seconds: number;
  decision?: Decision;
  measured?: { power_watts?: number; sm_clock_mhz?: number; gpu_utilisation_ratio?: number };
  changes: Decision[];
}
