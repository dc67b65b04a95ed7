// An application a row: what each policy gains and loses there, and what was published of it.
import { useState } from "preact/hooks";
import { percent, signed } from "./words";
import { Figure, Keys, Shape, useWidth, type TableOf } from "./figure";
import { linear, lookOf, ticks, type Scale } from "./scale";
import { compared, measuredApps, placeOf, type Published, type Results, type Stage } from "./types";

const kRow = 19, kTop = 30, kBottom = 44, kNames = 104; // pixels

/** The axis of rows: lines, their values, what they are, and a promise if there is one. */
function Axis({ x, low, most, wide, rows, title, promise }: { x: Scale; low: number; most: number; wide: number; rows: string[]; title: string; promise?: number }) {
  const bottom = kTop + rows.length * kRow;
  return (
    <>
      {rows.map((name, i) => (
        <g key={name}>
          {i % 2 === 0 && <rect class="band" x={0} width={wide} y={kTop + i * kRow} height={kRow} />}
          <text class="strong" x={kNames - 10} y={kTop + (i + 0.5) * kRow + 4} text-anchor="end">{name}</text>
        </g>
      ))}
      {ticks(low, most, 5).map((v) => (
        <g key={v}>
          <line class="axis" x1={x(v)} x2={x(v)} y1={kTop - 4} y2={bottom} />
          <text x={x(v)} y={kTop - 10} text-anchor="middle">{percent(v)}</text>
          <text x={x(v)} y={bottom + 15} text-anchor="middle">{percent(v)}</text>
        </g>
      ))}
      {promise !== undefined && <line class="promise" x1={x(promise)} x2={x(promise)} y1={kTop - 4} y2={bottom} />}
      <text class="title" x={(kNames + wide) / 2} y={bottom + 34} text-anchor="middle">{title}</text>
    </>
  );
}

function extent(values: number[], promise?: number): [number, number] {
  const low = Math.min(0, ...values), most = Math.max(0.01, promise ?? 0, ...values);
  const margin = 0.02 * (most - low);
  return [low < 0 ? low - margin : 0, most + margin];
}

interface Value {
  title: string;
  axis: string;
  file: string;
  of: (app: { loss_ratio: { mean: number }; efficiency_gain_ratio: { mean: number } }) => number;
  oracle: (app: Stage["hindsight"][number]) => number;
  promise?: number;
  say: (value: number) => string;
}

function Dots({ results, stage, value, rows, hidden }: { results: Results; stage: Stage; value: Value; rows: string[]; hidden: ReadonlySet<string> }) {
  const [place, wide] = useWidth(310, 560);
  const policies = compared(results, stage);
  const drawn = policies.filter((each) => !hidden.has(each.policy));
  const all = [...policies.flatMap((each) => measuredApps(each).map(value.of)), ...stage.hindsight.map(value.oracle)];
  const [low, most] = extent(all, value.promise);
  const x = linear([low, most], [kNames, wide - 12]);
  const of = (policy: (typeof policies)[number], name: string) => {
    const app = measuredApps(policy).find((each) => each.app === name);
    return app && value.of(app);
  };
  const oracleOf = (name: string) => {
    const known = stage.hindsight.find((each) => each.app === name);
    return known && value.oracle(known);
  };
  const table: TableOf = {
    head: ["application", ...policies.map((each) => `${each.policy}, %`), ...(stage.hindsight.length > 0 ? ["oracle, %"] : [])],
    rows: rows.map((name) => [
      name, ...policies.map((each) => { const v = of(each, name); return v === undefined ? null : 100 * v; }),
      ...(stage.hindsight.length > 0 ? [100 * oracleOf(name)!] : []),
    ]),
  };
  return (
    <div ref={place}>
      <Figure title={value.title} file={value.file} table={table} width={wide} height={kTop + rows.length * kRow + kBottom}>
        <Axis x={x} low={low} most={most} wide={wide} rows={rows} title={value.axis} promise={value.promise} />
        {rows.map((name, i) => {
          const at = kTop + (i + 0.5) * kRow, best = oracleOf(name);
          return (
            <g key={name}>
              {best !== undefined && <line class="oracle" x1={x(best)} x2={x(best)} y1={at - 8} y2={at + 8} data-said={`${name}, oracle in hindsight: ${value.say(best)}`} />}
              {drawn.map((each) => {
                const v = of(each, name);
                return v !== undefined && <Shape key={each.policy} look={lookOf(placeOf(results, stage, each))} x={x(v)} y={at} said={`${name}, ${each.policy}: ${value.say(v)}`} />;
              })}
            </g>
          );
        })}
      </Figure>
    </div>
  );
}

/** Both values of each application; one choice of policies and one order for both. */
export function Applications({ results, stage, first, file }: { results: Results; stage: Stage; first: string; file: string }) {
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const policies = compared(results, stage);
  const toggle = (label: string) => {
    const next = new Set(hidden);
    if (!next.delete(label)) next.add(label);
    setHidden(next);
  };
  const leader = policies.find((each) => each.policy === first);
  const gainOf = (name: string) => measuredApps(leader ?? policies[0]!).find((each) => each.app === name)?.efficiency_gain_ratio.mean ?? -1;
  const rows = [...stage.apps].sort((a, b) => gainOf(b) - gainOf(a));
  const values: Value[] = [
    { title: "Gain of efficiency by application", axis: "gain of efficiency", file: `${file}-gains`, of: (app) => app.efficiency_gain_ratio.mean, oracle: (app) => app.oracle.efficiency_gain_ratio, say: (v) => signed(v) },
    { title: "Loss of performance by application", axis: "loss of performance", file: `${file}-losses`, of: (app) => app.loss_ratio.mean, oracle: (app) => app.oracle.loss_ratio, promise: results.delta, say: (v) => percent(v, 1) },
  ];
  return (
    <>
      <p>
        In the order of what {first} gains. {stage.hindsight.length > 0 && "The upright line is the oracle: the best constant clock for that application that keeps the promise."} Press a name to hide it.
      </p>
      <Keys entries={policies.map((each) => ({ label: each.policy, look: lookOf(placeOf(results, stage, each)) }))} hidden={hidden} toggle={toggle} />
      <div class="columns">
        {values.map((value) => <Dots key={value.file} results={results} stage={stage} value={value} rows={rows} hidden={hidden} />)}
      </div>
    </>
  );
}

// --- beside what others published ----------------------------------------------------------------

interface Pair {
  title: string;
  axis: string;
  file: string;
  there: (one: Published) => number;
  here: (one: Published) => number;
  promise?: number;
}

const kHere = lookOf(0), kThere = lookOf(1);
const kFar = 0.03; // three points

function Dumbbells({ rows, pair }: { rows: Published[]; pair: Pair }) {
  const [place, wide] = useWidth(310, 560);
  const [low, most] = extent(rows.flatMap((each) => [pair.there(each), pair.here(each)]), pair.promise);
  const x = linear([low, most], [kNames, wide - 12]);
  const table = { head: ["application", "published, %", "here, %"], rows: rows.map((each) => [each.app, 100 * pair.there(each), 100 * pair.here(each)]) };
  return (
    <div ref={place}>
      <Figure title={pair.title} file={pair.file} table={table} width={wide} height={kTop + rows.length * kRow + kBottom}>
        <Axis x={x} low={low} most={most} wide={wide} rows={rows.map((each) => each.app)} title={pair.axis} promise={pair.promise} />
        {rows.map((each, i) => {
          const at = kTop + (i + 0.5) * kRow, there = pair.there(each), here = pair.here(each);
          return (
            <g key={each.app}>
              <line class={Math.abs(there - here) > kFar ? "far" : "near"} x1={x(there)} x2={x(here)} y1={at} y2={at} />
              <Shape look={kThere} hollow x={x(there)} y={at} said={`${each.app}, published: ${percent(there, 1)}`} />
              <Shape look={kHere} x={x(here)} y={at} said={`${each.app}, here: ${percent(here, 1)}`} />
            </g>
          );
        })}
      </Figure>
    </div>
  );
}

export function BesidePublished({ results, stage, file }: { results: Results; stage: Stage; file: string }) {
  const names = [...new Set(stage.published!.map((each) => each.policy))];
  const [policy, setPolicy] = useState(names[0]!);
  const rows = stage.published!.filter((each) => each.policy === policy);
  const mean = (of: (one: Published) => number) => rows.reduce((sum, each) => sum + of(each), 0) / rows.length;
  const pairs: Pair[] = [
    { title: "Gain of efficiency, published and here", axis: "gain of efficiency", file: `${file}-published-gains`, there: (one) => one.published_efficiency_gain_ratio, here: (one) => one.efficiency_gain_ratio },
    { title: "Loss of performance, published and here", axis: "loss of performance", file: `${file}-published-losses`, there: (one) => one.published_loss_ratio, here: (one) => one.loss_ratio, promise: results.delta },
  ];
  return (
    <>
      <label>policy <select value={policy} onChange={(event) => setPolicy(event.currentTarget.value)}>{names.map((each) => <option key={each}>{each}</option>)}</select></label>
      <p>
        Means over {rows.length} applications: efficiency {signed(mean(pairs[0]!.there))} published, {signed(mean(pairs[0]!.here))} here;
        loss {percent(mean(pairs[1]!.there), 1)} published, {percent(mean(pairs[1]!.here), 1)} here. A thick line: more than 3 points apart.
      </p>
      <Keys entries={[{ label: "published", look: kThere }, { label: "here", look: kHere }]} />
      <div class="columns">{pairs.map((pair) => <Dumbbells key={pair.file} rows={rows} pair={pair} />)}</div>
    </>
  );
}
