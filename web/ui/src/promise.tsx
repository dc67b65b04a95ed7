// What would come of another promise, and setting it: tried first, kept when somebody says so.
import { useEffect, useRef, useState } from "preact/hooks";
import { post } from "./api";
import { useAsked } from "./live";
import type { Forecast, Forecasts, Gpu, Setting } from "./types";
import { estimated, megahertz, percent } from "./words";

const kTrySeconds = 30;
const kTryLongSeconds = 300; // until it has learned, and somebody has looked
const kOperators = ["operator", "admin"];

const widest = 760, kHigh = 212, kLeft = 40, kRight = 24, kBottom = 46, kTop = 14;

/** The stop that is nearest to what may be lost now. */
function stopOf(forecasts: Forecast[], delta?: number): number {
  if (delta === undefined) return 0;
  let best = 0;
  forecasts.forEach((each, i) => {
    if (Math.abs(each.delta_ratio - delta) < Math.abs(forecasts[best]!.delta_ratio - delta)) best = i;
  });
  return best;
}

interface Band {
  of: (each: Forecast) => [low: number, mean: number, high: number];
  name: string;
  className: string;
}
const kBands: Band[] = [
  { name: "energy saved", className: "saves", of: (f) => [f.saving_low_ratio, f.saving_ratio, f.saving_high_ratio] },
  { name: "performance lost", className: "loses", of: (f) => [f.loss_low_ratio, f.loss_ratio, f.loss_high_ratio] },
];

/** The width of the page's place for it, so that its text has the page's size on a phone, too. */
function useWidth(): [preact.RefObject<HTMLDivElement>, number] {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(widest);
  useEffect(() => {
    const resized = new ResizeObserver(() => setWidth(Math.max(260, Math.min(widest, place.current?.clientWidth ?? widest))));
    resized.observe(place.current!);
    return () => resized.disconnect();
  }, []);
  return [place, width];
}

function Plot({ forecasts, at, wide }: { forecasts: Forecast[]; at: number; wide: number }) {
  const most = forecasts[forecasts.length - 1]!.delta_ratio;
  const top = Math.max(0.1, ...forecasts.map((f) => Math.max(f.saving_high_ratio, f.loss_high_ratio)));
  const x = (delta: number) => kLeft + ((wide - kLeft - kRight) * delta) / most;
  const y = (share: number) => kTop + (kHigh - kTop - kBottom) * (1 - Math.max(0, share) / top);
  const line = (values: [number, number][]) =>
    values.map(([a, b], i) => `${i === 0 ? "M" : "L"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
  const steps = [0, 0.1, 0.2, 0.3, 0.4, 0.5].filter((share) => share <= top);
  const chosen = forecasts[at]!;
  return (
    <svg class="forecast" viewBox={`0 0 ${wide} ${kHigh}`} aria-hidden="true">
      {steps.map((share) => (
        <g key={share}>
          <line class="grid" x1={kLeft} x2={wide - kRight} y1={y(share)} y2={y(share)} />
          <text x={kLeft - 6} y={y(share) + 4} text-anchor="end">{percent(share)}</text>
        </g>
      ))}
      {[0.05, 0.1, 0.15, 0.2, 0.25, 0.3].filter((d) => d <= most).map((delta) => (
        <text key={delta} x={x(delta)} y={kHigh - 28} text-anchor="middle">{percent(delta)}</text>
      ))}
      <text class="axis" x={(kLeft + wide - kRight) / 2} y={kHigh - 8} text-anchor="middle">performance that may be lost</text>
      <text class="axis" x={kLeft + 6} y={kTop + 4}>share of energy, of performance</text>
      {kBands.map((band) => (
        <g key={band.name} class={band.className}>
          <path class="band" d={
            line(forecasts.map((f) => [f.delta_ratio, band.of(f)[2]])) +
            line([...forecasts].reverse().map((f) => [f.delta_ratio, band.of(f)[0]])).replace("M", "L") + "Z"} />
          <path class="mean" d={line(forecasts.map((f) => [f.delta_ratio, band.of(f)[1]]))} />
          <circle cx={x(chosen.delta_ratio)} cy={y(band.of(chosen)[1])} r="5" />
        </g>
      ))}
      <line class="chosen" x1={x(chosen.delta_ratio)} x2={x(chosen.delta_ratio)} y1={kTop} y2={kHigh - kBottom} />
    </svg>
  );
}

const sure = (low: number, high: number) => `90 % sure ${percent(low)} to ${percent(high)}`;

function Told({ forecast }: { forecast: Forecast }) {
  return (
    <dl class="facts three">
      <div>
        <dt>Clock</dt>
        <dd>{megahertz(forecast.clock_mhz)}</dd>
      </div>
      <div class="saves">
        <dt><svg viewBox="0 0 18 6" aria-hidden="true"><line x1="0" x2="18" y1="3" y2="3" /></svg> Energy saved, expected from now on</dt>
        <dd>{estimated(forecast.saving_ratio, forecast.saving_low_ratio, forecast.saving_high_ratio)} <span class="dim">{sure(forecast.saving_low_ratio, forecast.saving_high_ratio)}</span></dd>
      </div>
      <div class="loses">
        <dt><svg viewBox="0 0 18 6" aria-hidden="true"><line x1="0" x2="18" y1="3" y2="3" /></svg> Performance lost</dt>
        <dd>{estimated(forecast.loss_ratio, forecast.loss_low_ratio, forecast.loss_high_ratio)} <span class="dim">{sure(forecast.loss_low_ratio, forecast.loss_high_ratio)}</span></dd>
      </div>
    </dl>
  );
}

const kThumb = 16; // CSS pixels: its middle is at the ends of the chart's axis
const kKeys: Record<string, number> = {
  ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 3, PageDown: -3, Home: -Infinity, End: Infinity,
};

/** Why a curve is flat from here on, where the clock is the lowest that may be set. */
function lowestReached(forecasts: Forecast[], at: number): string | undefined {
  const clock = forecasts[forecasts.length - 1]!.clock_mhz;
  let first = forecasts.length - 1;
  while (first > 0 && forecasts[first - 1]!.clock_mhz === clock) --first;
  if (at < first || first === forecasts.length - 1) return undefined;
  return `From ${percent(forecasts[first]!.delta_ratio)} on the clock stays at ${megahertz(clock)}: a lower one saves no more, or may not be set.`;
}

/** The slider below the chart, on the chart's own axis. */
function Slide({ forecasts, at, now, choose }: {
  forecasts: Forecast[]; at: number; now: number; choose: (delta: number) => void;
}) {
  const [place, wide] = useWidth();
  const forecast = forecasts[at]!;
  const delta = forecast.delta_ratio;
  const most = forecasts[forecasts.length - 1]!.delta_ratio;
  const whole = Number.isInteger(Math.round(delta * 1e4) / 100);
  const move = (event: KeyboardEvent) => {
    const by = kKeys[event.key];
    if (by === undefined) return;
    event.preventDefault();
    choose(forecasts[Math.min(forecasts.length - 1, Math.max(0, at + by))]!.delta_ratio);
  };
  const slid = (input: HTMLInputElement) => {
    const nearest = forecasts[stopOf(forecasts, Number(input.value))]!.delta_ratio;
    input.value = String(nearest);
    choose(nearest);
  };
  const saves = estimated(forecast.saving_ratio, forecast.saving_low_ratio, forecast.saving_high_ratio);
  const loses = estimated(forecast.loss_ratio, forecast.loss_low_ratio, forecast.loss_high_ratio);
  const flat = lowestReached(forecasts, at);
  return (
    <div ref={place}>
      <label for="may-lose">May lose <b>{percent(delta, whole ? 0 : 1)}</b> of performance{at === now ? ", as now" : ""}</label>
      <Told forecast={forecast} />
      <Plot forecasts={forecasts} at={at} wide={wide} />
      <input id="may-lose" class="slide" type="range" min={0} max={most} step="any" value={delta}
             style={{ marginLeft: `${kLeft - kThumb / 2}px`, width: `${wide - kLeft - kRight + kThumb}px` }}
             aria-valuetext={`may lose ${percent(delta)}: ${megahertz(forecast.clock_mhz)}, saves ${saves}, loses ${loses}`}
             onKeyDown={move} onInput={(event) => slid(event.currentTarget)} />
      {flat && <p class="dim">{flat}</p>}
    </div>
  );
}

function Figures({ forecasts, now }: { forecasts: Forecast[]; now: number }) {
  return (
    <details>
      <summary>As figures</summary>
      <div class="scroll" tabIndex={0} role="region" aria-label="forecasts">
        <table>
          <thead>
            <tr><th scope="col">may lose</th><th scope="col">clock</th><th scope="col">saves</th><th scope="col">90 % sure</th><th scope="col">loses</th><th scope="col">90 % sure</th></tr>
          </thead>
          <tbody>
            {forecasts.map((each, i) => (
              <tr key={each.delta_ratio}>
                <th scope="row">{percent(each.delta_ratio)}{i === now ? <span class="dim"> now</span> : null}</th>
                <td>{megahertz(each.clock_mhz)}</td>
                <td>{estimated(each.saving_ratio, each.saving_low_ratio, each.saving_high_ratio)}</td>
                <td>{percent(each.saving_low_ratio)} to {percent(each.saving_high_ratio)}</td>
                <td>{estimated(each.loss_ratio, each.loss_low_ratio, each.loss_high_ratio)}</td>
                <td>{percent(each.loss_low_ratio)} to {percent(each.loss_high_ratio)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

/** What is tried ends by itself; who looks sees how long it still has. */
function Trial({ left, busy, keep, back }: { left: number; busy: boolean; keep: () => void; back: () => void }) {
  const [shown, setShown] = useState(Math.ceil(left));
  useEffect(() => {
    const end = Date.now() + left * 1000;
    setShown(Math.ceil(left));
    const timer = setInterval(() => setShown(Math.max(0, Math.ceil((end - Date.now()) / 1000))), 500);
    return () => clearInterval(timer);
  }, [left]);
  return (
    <div class="trial">
      <p role="timer">On trial: what governed before comes back in <b>{shown} s</b>.</p>
      <button type="button" class="main" disabled={busy} onClick={keep}>keep it</button>
      <button type="button" disabled={busy} onClick={back}>back now</button>
    </div>
  );
}

/** The last that were told while assure governs: a policy that was just set has to see the work first. */
function useKept(told?: Forecasts): Forecast[] {
  const kept = useRef<Forecast[]>([]);
  if (told && (told.forecasts.length > 0 || told.policy !== "assure")) kept.current = told.forecasts;
  return kept.current;
}

/** Who may set a policy, by the configuration: "root", "root and the group derate". */
function useOperators(): string {
  const settings = useAsked<{ settings: Setting[] }>("config-show", 60_000).value?.settings;
  const word = settings?.find((each) => each.key === "api.operators")?.value.replace(/^"|"$/g, "");
  return word === undefined ? "an operator" : word === "root" || word === "" ? "root alone, by sudo" : word === "everyone" ? "everyone"
    : `the group ${word}, and root by sudo`;
}

function HowToSet({ command }: { command: string }) {
  const who = useOperators();
  return <p class="dim"><code>{command}</code> sets it. May do so: {who}.</p>;
}

/** No forecast: how the GPU comes to be governed, and where what its history knows is to be read. */
function HowToGovern({ gpu, operates }: { gpu: Gpu; operates: boolean }) {
  return (
    <>
      {!gpu.policy && (
        <p class="dim">
          What a policy would have saved here, by this GPU's history: <code>derate advise --history -i {gpu.index}</code>
        </p>
      )}
      {operates ? <p class="dim">Until it is released: <code>derate policy set assure -i {gpu.index}</code></p>
        : <HowToSet command={`derate policy set assure -i ${gpu.index}`} />}
    </>
  );
}

export function PromiseView({ gpu, role }: { gpu: Gpu; role?: string }) {
  const [again, setAgain] = useState(0);
  const [busy, setBusy] = useState(false);
  const [said, setSaid] = useState("");
  const [chosen, setChosen] = useState<number>(); // a delta: its place in the list may change
  const asked = useAsked<Forecasts>(`forecast?gpu=${gpu.uuid}`, 2000, again);
  const told = asked.value;
  const forecasts = useKept(told);
  const left = told?.unconfirmed_seconds;
  useEffect(() => setSaid(""), [left === undefined]);
  if (!told) return asked.error ? <p class="empty">{asked.error.message}</p> : null;
  const act = (path: string, body: object) => {
    setBusy(true);
    setSaid("");
    post<{ message?: string }>(path, body)
      .then((done) => setSaid(done.message ?? "done"), (error: Error) => setSaid(error.message))
      .finally(() => { setBusy(false); setAgain((before) => before + 1); });
  };
  const attempt = (seconds: number, set: string[]) =>
    act("policy-set", { policy: "assure", set, gpus: gpu.uuid, confirm_within_seconds: seconds });
  const operates = role !== undefined && kOperators.includes(role);
  const learning = forecasts.length > 0 && told.forecasts.length === 0;
  const now = stopOf(forecasts, told.now_delta_ratio);
  const at = chosen === undefined ? now : stopOf(forecasts, chosen);
  const forecast = forecasts[at];
  const delta = forecast?.delta_ratio ?? 0;
  return (
    <>
      {operates && left !== undefined && (
        <Trial left={left} busy={busy}
               keep={() => act("policy-confirm", { gpus: gpu.uuid })}
               back={() => act("policy-confirm", { gpus: gpu.uuid, revert: true })} />
      )}
      {!forecast && <p class="empty">{told.why}</p>}
      {!forecast && operates && left === undefined && told.policy !== "assure" && (
        <p class="act">
          <button type="button" disabled={busy} onClick={() => attempt(kTryLongSeconds, [])}>
            let assure govern it for {kTryLongSeconds / 60} minutes
          </button>
        </p>
      )}
      {!forecast && told.policy !== "assure" && <HowToGovern gpu={gpu} operates={operates} />}
      {forecast && (
        <div>
          <Slide forecasts={forecasts} at={at} now={now} choose={setChosen} />
          <Figures forecasts={forecasts} now={now} />
          <p class="dim">
            {learning
              ? "Of the work as it was known before; it is being looked at anew."
              : "Of the work that runs now, in the next minutes, against the highest clock. Nothing changes by moving the slider."}
          </p>
          {told.promise_from && told.promise_from !== "policy" && (
            <p class="dim">What may be lost now was asked by the work itself ({told.promise_from}), which comes before what is set here.</p>
          )}
          {operates ? (
            <p class="act">
              <button type="button" class="main" disabled={busy || at === now || left !== undefined}
                      onClick={() => attempt(kTrySeconds, [`delta=${delta}`])}>
                try it for {kTrySeconds} s
              </button>
              {at === now && left === undefined && <span class="dim"> Move the slider to try another promise.</span>}
              {gpu.dry_run && <span class="dim"> A dry run stays one: nothing is written.</span>}
            </p>
          ) : (
            <HowToSet command={`derate policy set assure --delta ${delta} -i ${gpu.index}`} />
          )}
        </div>
      )}
      <p role="status" class="said">{said}</p>
    </>
  );
}
