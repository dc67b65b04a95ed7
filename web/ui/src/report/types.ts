// What `derate report` puts into its page: docs/json.md, schema derate/report/1.

/** A mean, and where 95 % of the means of samples drawn again lie; without these: of one job. */
export interface Figures {
  mean: number;
  low?: number;
  high?: number;
}

export interface App {
  app: string;
  jobs: number;
  failed_jobs: number;
  error?: string;
  judged_jobs?: number;
  broken_jobs?: number;
  loss_ratio: Figures;
  efficiency_gain_ratio: Figures;
  energy_saving_ratio: number;
  worst_job_loss_ratio: number;
  time_seconds: number;
  energy_joules: number;
  mean_power_watts: number;
  mean_clock_mhz?: number;
  rate?: number;
  work_unit?: string;
  activity?: Record<string, number>;
}

export interface Policy {
  policy: string;
  jobs: number; // 0: not run, and nothing below is there
  failed_jobs: number;
  delta: number;
  judged_jobs: number;
  broken_jobs: number;
  broken_ratio?: number;
  apps_over: number;
  loss_ratio: Figures;
  efficiency_gain_ratio: Figures;
  energy_saving_ratio: number;
  worst_loss_ratio: number;
  worst_app: string;
  worst_job_loss_ratio: number;
  probing_ratio: number;
  clock_changes_per_minute: number;
  fixed_clock_gain_ratio?: number;
  apps: App[];
  known_apps: number; // applications of the stage that its priors were made with
}

/** One policy over all stages, each application with the same weight. */
export interface Overall {
  policy: string;
  delta: number;
  apps: number;
  known_apps: number;
  jobs: number; // 0: not run, and nothing below is there
  judged_jobs: number;
  broken_jobs: number;
  energy_saving_ratio: Figures;
  loss_ratio: Figures;
  efficiency_gain_ratio: Figures;
  worst_job_loss_ratio: number;
}

/** The headline's figures less another policy's, job by job. */
export interface Difference {
  than: string;
  apps: number;
  jobs: number;
  energy_saving_ratio: Figures;
  loss_ratio: Figures;
}

export interface Outcome {
  loss_ratio: number;
  efficiency_gain_ratio: number;
  energy_saving_ratio: number;
}

export interface Hindsight extends Outcome {
  worst_loss_ratio: number;
  worst_app: string;
}

export interface Published {
  policy: string;
  app: string;
  published_efficiency_gain_ratio: number;
  efficiency_gain_ratio: number;
  published_loss_ratio: number;
  loss_ratio: number;
}

export interface Stage {
  chip: string;
  title: string;
  apps: string[];
  stress: Record<string, number>;
  policies: Policy[];
  frontier: (Hindsight & { clock_mhz: number })[];
  hindsight: { app: string; oracle: Outcome & { clock_mhz: number }; two_clocks: Outcome }[];
  oracle?: Hindsight;
  two_clocks?: Hindsight;
  published?: Published[];
}

export interface Trace {
  stage: number;
  app: string;
  policy: string;
  job: number;
  step_seconds: number;
  clock: (number | null)[];
  asked: (number | null)[];
  power: (number | null)[];
  gpu: (number | null)[];
  memory: (number | null)[];
  probing: number[];
  remarks: [number, string][]; // point, text
}

export interface Results {
  experiment: string;
  place: string;
  delta: number;
  repetitions: number;
  work_seconds: number;
  idle_seconds: number;
  baseline: string;
  sessions: number;
  sessions_run: number;
  stages: Stage[];
  axes: Record<string, string>;
  traces: Trace[];
  version: string; // of the program that made the page
  seed: number;
  simulated: boolean;
  run_version: string;
  run_day?: string;
  experiment_digest?: string;
  tables_digest?: string;
  workload_sources: { chip: string; source: string; apps: number }[];
  headline?: string;
  overall: Overall[];
  differences: Difference[];
}

/** Policies to show beside the baseline: those of which something has run. */
export const compared = (results: Results, stage: Stage): Policy[] =>
  stage.policies.filter((each) => each.policy !== results.baseline && each.jobs > 0);

/** Its place among those that are compared, by which it has its look. */
export const placeOf = (results: Results, stage: Stage, policy: Policy): number =>
  stage.policies.filter((each) => each.policy !== results.baseline).indexOf(policy);

export const measuredApps = (policy: Policy): App[] => policy.apps.filter((each) => each.jobs > 0);
