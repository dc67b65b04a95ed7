// One job in time: its clock, power and utilisation, and why the clock was what it was.
import { useEffect, useState } from "preact/hooks";
import { unknown } from "./words";
import { Figure, useWidth } from "./figure";
import { linear, ticks, type Scale } from "./scale";
import type { Results, Trace } from "./types";

interface Line {
  name: string;
  key: "clock" | "asked" | "power" | "gpu" | "memory";
  colour: string;
  unit: string;
}

const kClock: Line = { name: "SM clock", key: "clock", colour: "c0", unit: "MHz" };
const kPanels: { title: string; unit: string; from: (low: number) => number; to: (high: number) => number; lines: Line[] }[] = [
  { title: "SM clock (MHz)", unit: "MHz", from: (low) => 0.97 * low, to: (high) => 1.03 * high, lines: [kClock, { name: "asked for", key: "asked", colour: "c1", unit: "MHz" }] },
  { title: "power (W)", unit: "W", from: () => 0, to: (high) => 1.05 * high, lines: [{ name: "power", key: "power", colour: "c2", unit: "W" }] },
  { title: "utilisation (%)", unit: "%", from: () => 0, to: () => 100, lines: [{ name: "GPU", key: "gpu", colour: "c3", unit: "%" }, { name: "memory", key: "memory", colour: "c5", unit: "%" }] },
];
const kLines = kPanels.flatMap((panel) => panel.lines);
const kHigh = 124, kTop = 22, kLeft = 58;

/** Steps for clocks, straight lines for what is measured; a gap stays a gap. */
function pathOf(values: (number | null)[], x: Scale, y: Scale, step: boolean): string {
  let path = "", drawing = false;
  values.forEach((value, i) => {
    if (value === null) drawing = false;
    else {
      const at = x(i).toFixed(1), height = y(value).toFixed(1);
      path += !drawing ? `M${at} ${height}` : step ? `H${at}V${height}` : `L${at} ${height}`;
      drawing = true;
    }
  });
  return path;
}

function Panel({ panel, top, trace, x, right }: { panel: (typeof kPanels)[number]; top: number; trace: Trace; x: Scale; right: number }) {
  const values = panel.lines.flatMap((line) => trace[line.key]).filter((value) => value !== null);
  if (values.length === 0) return null;
  const bottom = top + kHigh - 34;
  const low = panel.from(Math.min(...values)), high = panel.to(Math.max(...values));
  const y = linear([low, high], [bottom, top]);
  return (
    <>
      {ticks(low, high, 3).map((v) => <g key={v}><line class="axis" x1={kLeft} x2={right} y1={y(v)} y2={y(v)} /><text x={kLeft - 7} y={y(v) + 4} text-anchor="end">{Math.round(v)}</text></g>)}
      <text class="title" x={kLeft} y={top - 7}>{panel.title}</text>
      {panel.lines.length > 1 && panel.lines.map((line, i) => (
        <g key={line.key} transform={`translate(${right - 84 * (panel.lines.length - i)} ${top - 11})`}>
          <line class={`line ${line.colour}`} x1={0} x2={20} stroke-dasharray={i > 0 ? "4 2" : undefined} /><text x={26} y={4}>{line.name}</text>
        </g>
      ))}
      {panel.lines.map((line, i) => <path key={line.key} class={`line ${line.colour}`} stroke-dasharray={i > 0 ? "4 2" : undefined} d={pathOf(trace[line.key], x, y, panel.unit === "MHz")} />)}
    </>
  );
}

function TimeChart({ trace, at, file }: { trace: Trace; at: number; file: string }) {
  const [place, wide] = useWidth(330, 1100);
  const count = trace.clock.length, right = wide - 12, high = kPanels.length * kHigh + 34;
  const x = linear([0, count - 1], [kLeft, right]);
  const bottom = kTop + kPanels.length * kHigh - 34;
  const end = (count - 1) * trace.step_seconds;
  const table = {
    head: ["time, s", ...kLines.map((line) => `${line.name}, ${line.unit}`)],
    rows: trace.clock.map((_clock, i) => [Math.round(1000 * i * trace.step_seconds) / 1000, ...kLines.map((line) => trace[line.key][i])]),
  };
  return (
    <div ref={place}>
      <Figure title={`${trace.app} under ${trace.policy}, job ${trace.job}`} file={`${file}-job-${trace.job}`} table={table} width={wide} height={high}>
        {trace.probing.map((probed, i) => probed === 1 && <rect key={i} class="probed" x={x(i)} width={Math.max(1, x(1) - x(0))} y={kTop} height={bottom - kTop} />)}
        {kPanels.map((panel, i) => <Panel key={panel.title} panel={panel} top={kTop + i * kHigh} trace={trace} x={x} right={right} />)}
        {ticks(0, end, 8).map((v) => <text key={v} x={x(v / trace.step_seconds)} y={bottom + 16} text-anchor="middle">{Math.round(v)}</text>)}
        <text class="title" x={(kLeft + right) / 2} y={bottom + 33} text-anchor="middle">time since the job began (s)</text>
        <line class="now" x1={x(at)} x2={x(at)} y1={kTop} y2={bottom} />
        {trace.remarks.map(([point, text], i) => <circle key={i} class="remark" cx={x(point)} cy={bottom} r={3.5} data-said={`${(point * trace.step_seconds).toFixed(1)} s: ${text}`} />)}
      </Figure>
    </div>
  );
}

export function OneJob({ results, first, file }: { results: Results; first?: string; file: string }) {
  const apps = [...new Set(results.traces.map((each) => each.app))];
  const policies = [...new Set(results.traces.map((each) => each.policy))];
  const stages = [...new Set(results.traces.map((each) => each.stage))];
  const [app, setApp] = useState(apps[0]!);
  const [policy, setPolicy] = useState(policies.find((each) => each === first) ?? policies[0]!);
  const [stage, setStage] = useState(stages[0]!);
  const trace = results.traces.find((each) => each.app === app && each.policy === policy && each.stage === stage);
  const last = (trace?.clock.length ?? 1) - 1;
  const [chosen, setAt] = useState(last);
  useEffect(() => setAt(last), [last, trace]);
  const at = Math.min(chosen, last);
  const remark = trace?.remarks.filter(([point]) => point <= at).at(-1)?.[1];
  const value = (line: Line) => `${line.name} ${trace![line.key][at] ?? unknown} ${line.unit}`;
  return (
    <>
      <div class="choices">
        {stages.length > 1 && <label>stage <select value={stage} onChange={(event) => setStage(Number(event.currentTarget.value))}>{stages.map((each) => <option key={each} value={each}>{results.stages[each]!.title}</option>)}</select></label>}
        <label>application <select value={app} onChange={(event) => setApp(event.currentTarget.value)}>{apps.map((each) => <option key={each}>{each}</option>)}</select></label>
        <label>policy <select value={policy} onChange={(event) => setPolicy(event.currentTarget.value)}>{policies.map((each) => <option key={each}>{each}</option>)}</select></label>
      </div>
      {!trace ? <p>Of this job no ticks are in the page.</p> : (
        <>
          <TimeChart trace={trace} at={at} file={file} />
          <label class="scrub">moment <input type="range" min={0} max={last} value={at} aria-valuetext={`${(at * trace.step_seconds).toFixed(1)} seconds`} onInput={(event) => setAt(Number(event.currentTarget.value))} /></label>
          <p class="reason" role="status"><b>{(at * trace.step_seconds).toFixed(1)} s</b>: {kLines.map(value).join(", ")}{remark ? `. ${remark}` : ""}</p>
        </>
      )}
    </>
  );
}
