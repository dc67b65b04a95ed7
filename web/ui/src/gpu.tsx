// One GPU: now, over time, why, and whose watts.
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { AdviceView } from "./advice";
import { get } from "./api";
import { Chart, type Curve } from "./chart";
import { useAsked } from "./live";
import { PromiseView } from "./promise";
import type { Column, DerateEvent, Gpu, History, Tenant, Why } from "./types";
import {
  celsius, clockTime, dayTime, energy, gpuName, judge, megahertz, percent, unknown, watts, why,
} from "./words";

const kSpans = [
  { name: "5 min", from: "now-5m", everyMs: 2000 },
  { name: "1 h", from: "now-1h", everyMs: 10_000 },
  { name: "6 h", from: "now-6h", everyMs: 30_000 },
  { name: "24 h", from: "now-24h", everyMs: 60_000 },
] as const;

interface Lines {
  times: number[];
  of: (column: (series: History["series"][number]) => Column) => (number | null)[];
}

/** A GPU has a series a policy: of each step the one that has a value, and of a gap nothing. */
function lines(history: History): Lines {
  const times: number[] = [];
  const step = Math.max(1, history.step_seconds);
  const at = new Map<number, number>();
  let first = Infinity, last = -Infinity;
  for (const series of history.series)
    for (const begin of series.begin_unix_seconds) {
      first = Math.min(first, begin);
      last = Math.max(last, begin);
    }
  for (let time = first; time <= last; time += step) {
    at.set(time, times.length);
    times.push(time);
  }
  return {
    times,
    of: (column) => {
      const out: (number | null)[] = times.map(() => null);
      for (const series of history.series)
        series.begin_unix_seconds.forEach((begin, i) => {
          const value = column(series)?.[i];
          const place = at.get(begin);
          if (value != null && place !== undefined) out[place] = value;
        });
      return out;
    },
  };
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Now({ gpu }: { gpu: Gpu }) {
  const verdict = judge(gpu);
  return (
    <>
      <p class={`verdict wide ${verdict.level}`}>
        <span aria-hidden="true" class="mark">{verdict.mark}</span> {verdict.words}
        <span class="dim">: {why(gpu)}</span>
      </p>
      <dl class="facts">
        <Fact name="Power">
          {watts(gpu.power_watts)} <span class="dim">of {watts(gpu.factory_power_limit_watts)}</span>
        </Fact>
        <Fact name="Clock held">
          {megahertz(gpu.sm_clock_mhz)} <span class="dim">of {megahertz(gpu.highest_sm_clock_mhz)}</span>
        </Fact>
        <Fact name="Clock asked">{gpu.asked_clock_mhz ? megahertz(gpu.asked_clock_mhz) : "its own control"}</Fact>
        <Fact name="Utilisation">{percent(gpu.gpu_utilisation_ratio)}</Fact>
        <Fact name="Temperature">{celsius(gpu.temperature_celsius)}</Fact>
        <Fact name="Policy">
          {gpu.policy ?? "none"} {gpu.assigned && <span class="dim">by {gpu.assigned.by}</span>}
          {gpu.dry_run && <span class="dim"> (dry run: nothing is written)</span>}
        </Fact>
        <Fact name="Performance">
          {percent(gpu.expected_performance_ratio, 1)}{" "}
          <span class="dim">
            {gpu.promised_performance_ratio == null
              ? "nothing promised"
              : `estimated; promised ${percent(gpu.promised_performance_ratio, 1)}${gpu.promise ? `: ${gpu.promise}` : ""}`}
          </span>
        </Fact>
        <Fact name="Saved">
          {percent(gpu.saved?.energy_saving_ratio, 1)}{" "}
          {gpu.saved?.energy_saving_low_ratio != null && (
            <span class="dim">
              since {dayTime(gpu.saved.since_unix_seconds ?? 0)}, 90 % sure{" "}
              {percent(gpu.saved.energy_saving_low_ratio, 1)} to {percent(gpu.saved.energy_saving_high_ratio, 1)}
            </span>
          )}
        </Fact>
      </dl>
    </>
  );
}

function WhyThen({ gpu, at }: { gpu: Gpu; at?: number }) {
  const [told, setTold] = useState<Why | string>();
  const wanted = useRef<string>();
  useEffect(() => {
    const path = at === undefined ? `why?gpu=${gpu.index}&changes=6` : `why?gpu=${gpu.index}&at=@${Math.floor(at)}&changes=6`;
    wanted.current = path;
    const timer = setTimeout(() => {
      get<Why>(path)
        .then((why) => wanted.current === path && setTold(why))
        .catch((error: Error) => wanted.current === path && setTold(error.message));
    }, 120);
    return () => clearTimeout(timer);
  }, [gpu.index, at]);
  if (told === undefined) return null;
  if (typeof told === "string") return <p class="empty">{told}</p>;
  const decision = told.decision;
  return (
    <>
      <p aria-live="polite">
        <b>{dayTime(told.at_unix_seconds)}</b>{" "}
        {decision
          ? `${decision.reason ?? ""}. ${decision.policy ? `Policy ${decision.policy}` : "Only observed"}` +
            (decision.rule && decision.rule !== "none" ? `; the ${decision.rule} rule had the last word` : "") +
            (decision.bound ? `; bounded by ${decision.bound}` : "") + "."
          : "nothing was read then: derated did not run, or the GPU did not answer."}
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="changes of the clock">
        <table>
          <caption>The changes before, the newest first</caption>
          <thead>
            <tr><th scope="col">time</th><th scope="col">clock</th><th scope="col">last word</th><th scope="col" class="text">why</th></tr>
          </thead>
          <tbody>
            {[...told.changes].reverse().map((change) => (
              <tr key={change.time_unix_seconds}>
                <th scope="row">{clockTime(change.time_unix_seconds)}</th>
                <td>{change.asked_clock_mhz ? megahertz(change.asked_clock_mhz) : "own control"}</td>
                <td>{change.rule && change.rule !== "none" ? change.rule : "policy"}</td>
                <td class="text">{change.reason ?? ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

const tenantName = (tenant: Tenant) =>
  tenant.job ?? tenant.pod ?? tenant.container ?? tenant.process ?? tenant.key;

function Tenants({ gpu }: { gpu: Gpu }) {
  const tenants = gpu.attribution?.tenants ?? [];
  if (tenants.length === 0)
    return <p class="empty">Nobody works here: all {watts(gpu.power_watts)} are the GPU's own.</p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="tenants">
      <table>
        <thead>
          <tr>
            <th scope="col">who</th><th scope="col" class="text">user</th><th scope="col">power</th>
            <th scope="col">give or take</th><th scope="col">share</th><th scope="col">energy so far</th>
          </tr>
        </thead>
        <tbody>
          {[...tenants].sort((a, b) => (b.power_watts ?? 0) - (a.power_watts ?? 0)).map((tenant) => (
            <tr key={tenant.key}>
              <th scope="row">{tenantName(tenant)}{tenant.pid ? <span class="dim"> {tenant.pid}</span> : null}</th>
              <td class="text">{tenant.user ?? unknown}</td>
              <td>{watts(tenant.power_watts)}</td>
              <td>{watts(tenant.sigma_watts)}</td>
              <td>{percent(tenant.share_ratio)}</td>
              <td>{energy(tenant.energy_joules)}</td>
            </tr>
          ))}
          <tr>
            <th scope="row" class="dim">nobody's (idle)</th><td class="text" /><td>{watts(gpu.attribution?.unallocated_watts)}</td>
            <td /><td /><td />
          </tr>
        </tbody>
      </table>
    </div>
  );
}

interface OneGpuProperties {
  gpu: Gpu;
  events: DerateEvent[];
  role?: string;
}

function BelowTheCharts({ gpu, events, role }: OneGpuProperties) {
  const own = events.filter((event) => event.gpu === gpu.uuid).slice(-6).reverse();
  return (
    <>
      <section aria-labelledby="promise">
        <h2 id="promise">Another promise</h2>
        <PromiseView gpu={gpu} role={role} />
      </section>
      <section aria-labelledby="advice">
        <h2 id="advice">What holds the work back</h2>
        <AdviceView gpu={gpu} />
      </section>
      <section aria-labelledby="whose">
        <h2 id="whose">Whose watts</h2>
        <Tenants gpu={gpu} />
      </section>
      <section aria-labelledby="happened">
        <h2 id="happened">What happened here</h2>
        {own.length === 0 ? <p class="empty">Nothing in the last day.</p> : <EventList events={own} />}
      </section>
    </>
  );
}

export function OneGpu({ gpu, events, role }: OneGpuProperties) {
  const [span, setSpan] = useState(0);
  const [at, setAt] = useState<number>();
  const chosen = kSpans[span]!;
  const history = useAsked<History>(
    `history?gpus=${gpu.index}&kind=gpu&points=600&from=${chosen.from}`, chosen.everyMs);
  const shown = useMemo(() => (history.value ? lines(history.value) : undefined), [history.value]);
  const picked = useCallback((unix: number) => setAt(unix), []);
  const [power, clocks, shares] = useMemo((): [Curve[], Curve[], Curve[]] => {
    if (!shown) return [[], [], []];
    const hundred = (values: (number | null)[]) => values.map((v) => (v == null ? null : 100 * v));
    return [
      [{ name: "power", unit: "W", colour: "--blue", values: shown.of((s) => s.power_watts) }],
      [
        { name: "held", unit: "MHz", colour: "--blue", values: shown.of((s) => s.sm_clock_mhz) },
        { name: "asked", unit: "MHz", colour: "--orange", dash: [6, 4], values: shown.of((s) => s.asked_clock_mhz) },
      ],
      [
        { name: "utilisation", unit: "%", colour: "--blue", values: hundred(shown.of((s) => s.gpu_utilisation_ratio)) },
        { name: "performance", unit: "%", colour: "--orange", dash: [6, 4], values: hundred(shown.of((s) => s.performance_ratio)) },
        { name: "temperature", unit: "°C", colour: "--green", dash: [2, 3], values: shown.of((s) => s.temperature_most_celsius) },
      ],
    ];
  }, [shown]);
  // What does not follow the moment that is looked at is not made anew while it is scrubbed.
  const charts = useMemo(() => shown && (
    <>
      <Chart title="Power" times={shown.times} curves={power} picked={picked} />
      <Chart title="SM clock" times={shown.times} curves={clocks} picked={picked} />
      <Chart title="Work and heat" times={shown.times} curves={shares} picked={picked} />
    </>
  ), [shown]);
  const now = useMemo(() => <Now gpu={gpu} />, [gpu]);
  const below = useMemo(() => <BelowTheCharts gpu={gpu} events={events} role={role} />, [gpu, events, role]);
  return (
    <>
      <p><a href="#/">← all GPUs</a></p>
      <h1>{gpuName(gpu)} <span class="dim">{gpu.name}{gpu.simulated ? ", simulated" : ""}</span></h1>
      {now}
      <section aria-labelledby="over-time">
        <h2 id="over-time">Over time</h2>
        <fieldset class="spans">
          <legend class="sr">How long</legend>
          {kSpans.map((each, i) => (
            <label key={each.name}>
              <input type="radio" name="span" checked={i === span} onChange={() => { setSpan(i); setAt(undefined); }} />
              <span>{each.name}</span>
            </label>
          ))}
        </fieldset>
        {history.error && !shown && <p class="empty">{history.error.message}</p>}
        {shown && shown.times.length === 0 && <p class="empty">Nothing is kept of that time yet.</p>}
        {shown && shown.times.length > 0 && (
          <>
            {charts}
            <label class="scrub">
              <span>Look at a moment: {at === undefined ? "now" : clockTime(at)}</span>
              <input type="range" min={shown.times[0]} max={shown.times[shown.times.length - 1]}
                     step={history.value!.step_seconds} value={at ?? shown.times[shown.times.length - 1]}
                     onInput={(event) => setAt(Number(event.currentTarget.value))} />
              <button type="button" onClick={() => setAt(undefined)} disabled={at === undefined}>now</button>
            </label>
          </>
        )}
      </section>
      <section aria-labelledby="why">
        <h2 id="why">Why this clock</h2>
        <WhyThen gpu={gpu} at={at} />
      </section>
      {below}
    </>
  );
}

export function EventList({ events }: { events: DerateEvent[] }) {
  return (
    <ul class="events">
      {events.map((event) => (
        <li key={event.id} class={event.severity}>
          <time dateTime={new Date(event.time_unix_seconds * 1000).toISOString()}>
            {dayTime(event.time_unix_seconds)}
          </time>{" "}
          <span class="tag">{event.severity}</span> {event.message}
        </li>
      ))}
    </ul>
  );
}
