// One GPU: now, over time, why, and whose watts.
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { AdviceView } from "./advice";
import { get } from "./api";
import { CardView } from "./card";
import { Chart, type Curve, type Stretch } from "./chart";
import { AsOf } from "./as_of";
import { countOf } from "./choose";
import { EventList } from "./events";
import { Fact } from "./fact";
import { gapsOf, machineTime, timeOf, timeSeen, within90, type ShownGpu } from "./known";
import { eventsPath, useAsked, useQuiet, useSeconds, type Route } from "./live";
import { Name } from "./name";
import { PromiseView } from "./promise";
import { tenantName } from "./tenants";
import type { Column, EventsAnswer, Gpu, History, Tenant, Why } from "./types";
import {
  celsius, dayTime, energy, estimated, gpuName, judge, limitOf, megahertz, percent, unknown, watts, whole, why,
} from "./words";

const kSpans = [
  { key: "5m", name: "5 min", seconds: 300, everyMs: 2000 },
  { key: "1h", name: "1 h", seconds: 3600, everyMs: 10_000 },
  { key: "6h", name: "6 h", seconds: 6 * 3600, everyMs: 30_000 },
  { key: "24h", name: "24 h", seconds: 86400, everyMs: 60_000 },
  { key: "7d", name: "7 d", seconds: 7 * 86400, everyMs: 300_000 },
  { key: "30d", name: "30 d", seconds: 30 * 86400, everyMs: 300_000 },
] as const;
type Span = (typeof kSpans)[number];

/** A moment of the address: "2026-11-30T08:20:00Z", or seconds since 1970. */
function momentOf(word?: string): number | undefined {
  if (!word) return undefined;
  const unix = /^@?\d+$/.test(word) ? Number(word.replace("@", "")) : Date.parse(word) / 1000;
  return Number.isFinite(unix) ? unix : undefined;
}
const momentWord = (unix: number) => new Date(Math.floor(unix) * 1000).toISOString().replace(".000", "");

/** What is asked for: up to now, or around a moment that is longer ago than that. */
function historyPath(gpu: Gpu, span: Span, around?: number): string {
  const when = around === undefined ? `from=now-${span.seconds}s`
    : `from=@${Math.floor(around - span.seconds / 2)}&to=@${Math.floor(around + span.seconds / 2)}`;
  return `history?gpus=${gpu.index}&kind=gpu&points=600&${when}`;
}

interface Lines {
  times: number[];
  from: number; // what was asked for, in seconds since 1970
  to: number;
  of: (column: (series: History["series"][number]) => Column) => (number | null)[];
  gaps: Stretch[];
}

const kLeastGap = 10; // seconds: readings are kept a moment late

function stretches(history: History, times: number[], known: (number | null)[], from: number, to: number): Stretch[] {
  const step = Math.max(1, history.step_seconds);
  return gapsOf(times, (i) => known[i] != null, from, to, step, Math.max(kLeastGap, 3 * step)).map(([begin, end]) => ({
    begin,
    end,
    words: begin === from && (history.first_unix_seconds ?? Infinity) > from ? "nothing kept yet"
      : end === to ? `not read since ${timeOf(begin, to)}` : "not read",
  }));
}

/** A GPU has a series a policy: of each step the one that has a value, and of a gap nothing. */
function lines(history: History, to: number): Lines {
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
  const of: Lines["of"] = (column) => {
    const out: (number | null)[] = times.map(() => null);
    for (const series of history.series)
      series.begin_unix_seconds.forEach((begin, i) => {
        const value = column(series)?.[i];
        const place = at.get(begin);
        if (value != null && place !== undefined) out[place] = value;
      });
    return out;
  };
  const from = history.from_unix_seconds + (to - history.to_unix_seconds);
  return { times, from, to, of, gaps: stretches(history, times, of((series) => series.power_watts), from, to) };
}

/** A value that holds, or a dash and what it was. */
function Figure({ gpu, of, show }: { gpu: ShownGpu; of: (gpu: Gpu) => number | null | undefined; show: (value?: number | null) => string }) {
  const value = of(gpu), before = gpu.seen.holds ? undefined : gpu.was && of(gpu.was);
  return <>{show(value)}{value == null && before != null && <span class="dim"> was {show(before)}</span>}</>;
}

const kSources: Record<string, string> = {
  configuration: "by the configuration", command: "by a command", unconfirmed: "on trial", pod: "by a pod",
  job: "by a job of the scheduler", run: "by a run", tuning: "by tuning",
};

/** Leads to the section that says how. */
function ToGovern() {
  const go = (event: MouseEvent) => {
    event.preventDefault();
    const title = document.getElementById("promise");
    title?.scrollIntoView();
    title?.focus({ preventScroll: true });
  };
  return <span class="dim">only observed; <a href="#promise" onClick={go}>how to have it governed</a></span>;
}

function PolicyFact({ gpu }: { gpu: ShownGpu }) {
  const by = gpu.assigned;
  return (
    <Fact name="Policy">
      {gpu.policy ?? (gpu.seen.quiet ? unknown : "none")}{" "}
      {by && <span class="dim">{kSources[by.by] ?? `by ${by.by}`}{by.who ? <> of <Name of={by.who} /></> : null}{by.since_unix_seconds != null && `, since ${timeSeen(by.since_unix_seconds, gpu)}`}</span>}
      {!gpu.policy && gpu.seen.holds && <ToGovern />}
      {gpu.dry_run && <span class="dim"> (dry run: nothing is written)</span>}
    </Fact>
  );
}

function Estimates({ gpu }: { gpu: ShownGpu }) {
  const { saved } = gpu;
  const low = saved?.energy_saving_low_ratio, high = saved?.energy_saving_high_ratio;
  return (
    <>
      <Fact name="Performance">
        <Figure gpu={gpu} of={(each) => each.expected_performance_ratio} show={(value) => percent(value, 1)} />{" "}
        <span class="dim">
          {gpu.seen.quiet ? ""
            : gpu.promised_performance_ratio == null ? "nothing promised"
              : `${gpu.seen.holds ? "estimated; " : ""}promised ${percent(gpu.promised_performance_ratio, 1)}${gpu.promise ? `: ${gpu.promise}` : ""}`}
        </span>
      </Fact>
      <Fact name="Saved">
        {estimated(saved?.energy_saving_ratio, low, high)}{" "}
        {low != null && (
          <span class="dim">
            since {dayTime(saved?.since_unix_seconds ?? 0)}, 90 % sure {estimated(low, low, high)} to {estimated(high, low, high)}
          </span>
        )}
      </Fact>
    </>
  );
}

function Now({ gpu }: { gpu: ShownGpu }) {
  const verdict = judge(gpu);
  const limit = limitOf(gpu);
  const reason = why(gpu);
  return (
    <>
      <p class={`verdict wide ${verdict.level}`} title={whole(gpu)}>
        <span aria-hidden="true" class="mark">{verdict.mark}</span> {verdict.words}
        {reason && <span class="dim">: <Name of={reason} /></span>}
      </p>
      <dl class="facts">
        <Fact name="Power">
          <Figure gpu={gpu} of={(each) => each.power_watts} show={watts} />{" "}
          <span class="dim">of {watts(limit.watts)}{limit.factory ? `, the factory's limit is ${watts(limit.factory)}` : ""}</span>
        </Fact>
        <Fact name="Clock held">
          <Figure gpu={gpu} of={(each) => each.sm_clock_mhz} show={megahertz} />{" "}
          <span class="dim">of {megahertz(gpu.highest_sm_clock_mhz)}</span>
        </Fact>
        <Fact name="Clock set">
          {!gpu.seen.holds ? <Figure gpu={gpu} of={(each) => each.asked_clock_mhz} show={megahertz} />
            : gpu.asked_clock_mhz ? megahertz(gpu.asked_clock_mhz) : <>none <span class="dim">the GPU's own control</span></>}
        </Fact>
        <Fact name="Utilisation"><Figure gpu={gpu} of={(each) => each.gpu_utilisation_ratio} show={percent} /></Fact>
        <Fact name="Temperature"><Figure gpu={gpu} of={(each) => each.temperature_celsius} show={celsius} /></Fact>
        <PolicyFact gpu={gpu} />
        <Estimates gpu={gpu} />
      </dl>
    </>
  );
}

// By whom the clock was chosen: the policy, or a rule that comes before it.
const kRules: Record<string, string> = {
  none: "policy", envelope: "bounds", idle: "idle rule", wake: "wake rule", thermal: "heat rule", "rate-limit": "rate limit",
  stale: "old reading", expired: "no decision in time",
};
const ruleWords = (rule?: string) => (rule === undefined ? "policy" : kRules[rule] ?? rule);

function Changes({ told }: { told: Why }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="changes of the clock">
      <table class="narrow">
        <caption>The changes before, the newest first</caption>
        <thead>
          <tr><th scope="col">time</th><th scope="col">clock set</th><th scope="col" class="rule">chosen by</th><th scope="col" class="text">why</th></tr>
        </thead>
        <tbody>
          {[...told.changes].reverse().map((change) => (
            <tr key={change.time_unix_seconds}>
              <th scope="row">{timeOf(change.time_unix_seconds, told.at_unix_seconds)}</th>
              <td>{change.asked_clock_mhz && change.rule !== "expired" ? megahertz(change.asked_clock_mhz) : "own control"}</td>
              <td class="rule">{ruleWords(change.rule)}</td>
              <td class="text"><Name of={change.reason ?? ""} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const kWhyAgain = 5000; // ms, while now is looked at

function WhyThen({ gpu, at }: { gpu: ShownGpu; at?: number }) {
  const [told, setTold] = useState<Why | string>();
  const wanted = useRef<string>();
  useEffect(() => {
    const path = `why?gpu=${gpu.index}&changes=6${at === undefined ? "" : `&at=@${Math.floor(at)}`}`;
    wanted.current = path;
    const ask = () => {
      if (document.hidden) return;
      get<Why>(path)
        .then((why) => wanted.current === path && setTold(why))
        .catch((error: Error) => wanted.current === path && setTold(error.message));
    };
    const timer = setTimeout(ask, 120);
    const again = at === undefined ? setInterval(ask, kWhyAgain) : undefined;
    return () => {
      clearTimeout(timer);
      clearInterval(again);
    };
  }, [gpu.index, at]);
  if (told === undefined) return null;
  if (typeof told === "string") return <p class="empty">{told}</p>;
  const decision = told.decision;
  return (
    <>
      <p>
        <b>{dayTime(told.at_unix_seconds)}</b>{" "}
        <span aria-live="polite">
          <Name of={decision
            ? `${decision.reason ?? ""}. ${decision.policy ? `Policy ${decision.policy}` : "Only observed: no decision of Derate"}` +
              (decision.rule && decision.rule !== "none" ? `; chosen by: ${ruleWords(decision.rule)}` : "") +
              (decision.bound ? `; bounded by ${decision.bound}` : "") + "."
            : "nothing was read then: derated did not run, or the GPU did not answer."} />
        </span>
      </p>
      <Changes told={told} />
    </>
  );
}

function TenantRow({ tenant }: { tenant: Tenant }) {
  return (
    <tr>
      <th scope="row" class="who"><Name of={tenantName(tenant)} />{tenant.pid ? <span class="dim"> {tenant.pid}</span> : null}</th>
      <td class="text who">{tenant.user ? <Name of={tenant.user} /> : unknown}</td>
      <td>{watts(tenant.power_watts)}</td>
      <td>{tenant.sigma_watts == null ? unknown : `± ${watts(within90(tenant.sigma_watts))}`}</td>
      <td>{percent(tenant.share_ratio)}</td>
      <td>{energy(tenant.energy_joules)}</td>
    </tr>
  );
}

function Tenants({ gpu, now }: { gpu: ShownGpu; now?: number }) {
  const whose = gpu.attribution;
  const tenants = whose?.tenants ?? [];
  if (!gpu.seen.holds)
    return <p class="empty">{gpu.seen.words[0]!.toUpperCase() + gpu.seen.words.slice(1)}: without a reading there are no watts to share.</p>;
  if (tenants.length === 0 && whose?.reason) return <p class="empty">Not known: <Name of={whose.reason} />.</p>;
  if (tenants.length === 0 && gpu.power_watts == null) return <p class="empty">Not known: the GPU reports no power.</p>;
  if (tenants.length === 0)
    return <p class="empty">No job works here: all {watts(gpu.power_watts)} are the GPU's own.</p>;
  const counted = (whose?.seconds ?? 0) + (whose?.lost_seconds ?? 0);
  const since = now === undefined || counted === 0 ? undefined : now - counted;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="tenants">
      <table>
        <thead>
          <tr>
            <th scope="col">who</th><th scope="col" class="text">user</th><th scope="col">power</th>
            <th scope="col">90 % sure within</th><th scope="col">share</th>
            <th scope="col">energy{since !== undefined && now !== undefined ? ` since ${timeOf(since, now).replace(/:\d\d$/, "")}` : " since derated began"}</th>
          </tr>
        </thead>
        <tbody>
          {[...tenants].sort((a, b) => (b.power_watts ?? 0) - (a.power_watts ?? 0)).map((tenant) => (
            <TenantRow key={tenant.key} tenant={tenant} />
          ))}
          <tr>
            <th scope="row" class="dim">not any job's (idle)</th><td class="text" /><td>{watts(whose?.unallocated_watts)}</td>
            <td /><td /><td />
          </tr>
        </tbody>
      </table>
    </div>
  );
}

interface OneGpuProperties {
  gpu: ShownGpu;
  newest: number; // the id of the newest event
  role?: string;
  now?: number; // the machine's time, in seconds since 1970
  route: Route;
}

const kOwnEvents = 6, kEventsEveryMs = 30_000;

/** The GPU's own events, whatever happens to others. */
function Happened({ gpu, newest }: { gpu: Gpu; newest: number }) {
  const asked = useAsked<EventsAnswer>(eventsPath(kOwnEvents, { gpu: String(gpu.index) }), kEventsEveryMs, newest);
  const answer = asked.value;
  if (!answer) return <p class="empty">{asked.error ? asked.error.message : "Asking derated…"}</p>;
  if (answer.events.length === 0) return <p class="empty">Nothing in the last day.</p>;
  return (
    <>
      <AsOf live={asked} />
      <EventList lines={answer.events} />
      {countOf(answer.events) < (answer.total ?? 0) &&
        <p><a href={`#/events?gpu=${gpu.index}`}>All {answer.total!.toLocaleString("en")} of the last day</a></p>}
    </>
  );
}

function BelowTheCharts({ gpu, newest, role, now }: Omit<OneGpuProperties, "route">) {
  const silent = gpu.seen.holds ? undefined
    : <p class="empty">{gpu.seen.quiet ? "derated does not answer" : "The GPU does not answer"}: {gpu.seen.words}.</p>;
  return (
    <>
      <section aria-labelledby="promise">
        <h2 id="promise" tabIndex={-1}>Trade speed for energy</h2>
        {silent ?? <PromiseView gpu={gpu} role={role} />}
      </section>
      <section aria-labelledby="advice">
        <h2 id="advice">What holds the work back</h2>
        {silent ?? <AdviceView gpu={gpu} />}
      </section>
      <section aria-labelledby="whose">
        <h2 id="whose">Whose watts</h2>
        <Tenants gpu={gpu} now={now} />
        <p><a href="#/processes">Processes of all GPUs</a></p>
      </section>
      <section aria-labelledby="happened">
        <h2 id="happened">What happened here</h2>
        <Happened gpu={gpu} newest={newest} />
      </section>
    </>
  );
}

const hundred = (values: (number | null)[]) => values.map((v) => (v == null ? null : 100 * v));

interface Picture {
  title: string;
  curves: Curve[];
}

function picturesOf(shown: Lines, limit?: number): Picture[] {
  const promised = hundred(shown.of((s) => s.promised_performance_ratio));
  const power: Curve[] = [{ name: "power", unit: "W", colour: "--blue", values: shown.of((s) => s.power_watts) }];
  if (limit !== undefined)
    power.push({ name: "limit now", unit: "W", colour: "--text-2", dash: [2, 4], values: shown.times.map(() => limit) });
  const work: Curve[] = [
    { name: "utilisation", unit: "%", colour: "--blue", values: hundred(shown.of((s) => s.gpu_utilisation_ratio)) },
    { name: "performance", unit: "%", colour: "--orange", dash: [6, 4], values: hundred(shown.of((s) => s.performance_ratio)) },
  ];
  if (promised.some((each) => each !== null))
    work.push({ name: "promised", unit: "%", colour: "--text-2", dash: [2, 4], values: promised });
  return [
    { title: "Power", curves: power },
    {
      title: "SM clock",
      curves: [
        { name: "held", unit: "MHz", colour: "--blue", values: shown.of((s) => s.sm_clock_mhz) },
        { name: "set", unit: "MHz", colour: "--orange", dash: [6, 4], values: shown.of((s) => s.asked_clock_mhz) },
      ],
    },
    { title: "Utilisation and performance", curves: work },
    { title: "Temperature", curves: [{ name: "temperature", unit: "°C", colour: "--green", values: shown.of((s) => s.temperature_most_celsius) }] },
  ];
}

function Spans({ chosen, choose }: { chosen: Span; choose: (span: Span) => void }) {
  return (
    <fieldset class="spans">
      <legend class="sr">How long</legend>
      {kSpans.map((each) => (
        <label key={each.key}>
          <input type="radio" name="span" checked={each === chosen} onChange={() => choose(each)} />
          <span>{each.name}</span>
        </label>
      ))}
    </fieldset>
  );
}

const kAddressAfter = 400; // ms: browsers bound how often an address may change

/** The moment that is looked at, which the address follows. */
function useMoment(route: Route): [number | undefined, (unix?: number) => void] {
  const [at, setAt] = useState(() => momentOf(route.query.at));
  const timer = useRef<ReturnType<typeof setTimeout>>();
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => setAt(momentOf(route.query.at)), [route.query.at]);
  const move = useCallback((unix?: number) => {
    setAt(unix);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => route.set({ at: unix === undefined ? undefined : momentWord(unix) }), kAddressAfter);
  }, []);
  return [at, move];
}

// A moment at the left edge of a window that moves on leaves it soon: the window stays as long as that.
const kReach = 1.1;

function OverTime({ gpu, now, route, at, setAt }: {
  gpu: ShownGpu; now?: number; route: Route; at?: number; setAt: (unix?: number) => void;
}) {
  const span = kSpans.find((each) => each.key === route.query.span) ?? kSpans[0];
  // A moment of the address that the span does not reach has its own window, which stays.
  const [around, setAround] = useState<number>();
  useEffect(() => {
    if (at === undefined) setAround(undefined);
    else if (now !== undefined && now - at > kReach * span.seconds && (around === undefined || Math.abs(at - around) > span.seconds / 2))
      setAround(at);
  }, [at, span]);
  const history = useAsked<History>(historyPath(gpu, span, around), span.everyMs);
  const quiet = useQuiet(history, span.everyMs) && !gpu.seen.holds && around === undefined;
  const nowMs = useSeconds(quiet);
  const to = history.value && (quiet && history.heard
    ? history.value.to_unix_seconds + Math.floor(machineTime(history.heard, nowMs) - history.heard.unix)
    : history.value.to_unix_seconds);
  const shown = useMemo(() => (history.value ? lines(history.value, to!) : undefined), [history.value, to]);
  const limit = limitOf(gpu).watts;
  // What does not follow the moment that is looked at is not made anew while it is scrubbed.
  const charts = useMemo(() => shown && (
    <div class="charts">
      {picturesOf(shown, limit).map((each) => (
        <Chart key={each.title} title={each.title} times={shown.times} curves={each.curves} from={shown.from} to={shown.to}
               gaps={shown.gaps} picked={setAt} />
      ))}
    </div>
  ), [shown, limit]);
  return (
    <section aria-labelledby="over-time">
      <h2 id="over-time">Over time</h2>
      <Spans chosen={span} choose={(each) => { setAt(undefined); route.set({ span: each.key, at: undefined }); }} />
      {history.error && !shown && <p class="empty">{history.error.message}</p>}
      {shown && shown.times.length === 0 && (
        <p class="empty">
          Nothing is kept of that time. {at !== undefined && <button type="button" onClick={() => setAt(undefined)}>now</button>}
        </p>
      )}
      {shown && shown.times.length > 0 && (
        <>
          {charts}
          <label class="scrub">
            <span>Look at a moment: {at === undefined ? "now" : timeOf(at, now ?? at)}</span>
            <input type="range" min={shown.from} max={shown.to} step={history.value!.step_seconds} value={at ?? shown.to}
                   onInput={(event) => setAt(Number(event.currentTarget.value))} />
            <button type="button" onClick={() => setAt(undefined)} disabled={at === undefined}>now</button>
          </label>
        </>
      )}
    </section>
  );
}

export function OneGpu({ gpu, newest, role, now, route }: OneGpuProperties) {
  const [at, setAt] = useMoment(route);
  const below = useMemo(() => <BelowTheCharts gpu={gpu} newest={newest} role={role} now={now} />, [gpu, newest, role]);
  return (
    <>
      <p><a href="#/">← all GPUs</a></p>
      <h1>
        {gpuName(gpu)} <Name of={gpu.name} dim />{" "}
        {gpu.simulated && <span class="tag">simulated</span>}
      </h1>
      <Now gpu={gpu} />
      <CardView gpu={gpu} />
      <OverTime gpu={gpu} now={now} route={route} at={at} setAt={setAt} />
      <section aria-labelledby="why">
        <h2 id="why">Why this clock</h2>
        <WhyThen gpu={gpu} at={at} />
      </section>
      {below}
    </>
  );
}
