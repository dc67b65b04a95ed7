// Many stages by what was varied.
import { useState } from "preact/hooks";
import { percent, unknown } from "./words";
import { saveCsv } from "./figure";
import type { Policy, Results, Stage } from "./types";

type Of = (policy: Policy) => number | undefined;

interface Grid {
  results: Results;
  stages: Stage[];
  policy: string;
  across: string;
  down?: string;
}

const kGrids: { title: string; file: string; of: Of; good: boolean }[] = [
  { title: "Worst application’s loss", file: "worst-loss", of: (policy) => policy.worst_loss_ratio, good: false },
  { title: "Share of jobs with a broken promise", file: "broken", of: (policy) => policy.broken_ratio, good: false },
  { title: "Gain of efficiency", file: "gain", of: (policy) => policy.efficiency_gain_ratio.mean, good: true },
];

/** A value for each pair of the chosen axes; where other things vary, too, the worst of them. */
function Heat({ grid: { results, stages, policy, across, down }, title, of, good, file }: { grid: Grid; title: string; of: Of; good: boolean; file: string }) {
  const valueOf = (stage: Stage) => {
    const found = stage.policies.find((each) => each.policy === policy);
    return found && found.jobs > 0 ? of(found) : undefined;
  };
  const known = (list: Stage[]) => list.map(valueOf).filter((value) => value !== undefined);
  const most = Math.max(0.02, ...known(stages));
  const along = (axis: string) => [...new Set(stages.map((stage) => stage.stress[axis]!))];
  const columns = along(across), rows = down === undefined ? [undefined] : along(down);
  const at = (column: number, row?: number) => {
    const here = known(stages.filter((stage) => stage.stress[across] === column && (row === undefined || stage.stress[down!] === row)));
    return here.length === 0 ? undefined : good ? Math.min(...here) : Math.max(...here);
  };
  const corner = down === undefined ? results.axes[across]! : `${results.axes[down]} ↓, ${results.axes[across]} →`;
  const table = { head: [corner, ...columns.map(String)], rows: rows.map((row) => [row === undefined ? title : row, ...columns.map((column) => { const v = at(column, row); return v === undefined ? null : 100 * v; })]) };
  return (
    <figure>
      <figcaption>
        <b>{title}</b>
        <span class="files"><button type="button" aria-label={`${title} as CSV`} onClick={() => saveCsv(file, table)}>CSV</button></span>
      </figcaption>
      <div class="scroll" tabIndex={0} role="group" aria-label={title}>
        <table class="heat">
          <thead><tr><th scope="col">{corner}</th>{columns.map((each) => <th scope="col" key={each}>{each}</th>)}</tr></thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row}>
                <th scope="row">{row === undefined ? policy : row}</th>
                {columns.map((column) => {
                  const value = at(column, row);
                  return <td key={column} class={good ? "good" : "bad"} style={value === undefined ? {} : { "--share": `${Math.round(60 * Math.max(0, value) / most)}%` }}>{value === undefined ? unknown : percent(value, 1)}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </figure>
  );
}

export const variedAxes = (results: Results) =>
  Object.keys(results.axes).filter((axis) => new Set(results.stages.map((stage) => stage.stress[axis])).size > 1);

export function Stress({ results, first, file }: { results: Results; first: string; file: string }) {
  const varied = variedAxes(results);
  const policies = results.stages[0]!.policies.map((each) => each.policy).filter((each) => each !== results.baseline);
  const chips = [...new Set(results.stages.map((stage) => stage.chip))];
  const [policy, setPolicy] = useState(first);
  const [chip, setChip] = useState(chips[0]!);
  const [across, setAcross] = useState(varied[0]!);
  const [below, setBelow] = useState(varied.at(-1)!);
  const down = varied.length > 1 && below !== across ? below : undefined;
  const rest = varied.filter((axis) => axis !== across && axis !== down);
  const choose = (name: string, value: string, set: (value: string) => void, values: string[], text = (each: string) => each) =>
    values.length > 1 && <label>{name} <select value={value} onChange={(event) => set(event.currentTarget.value)}>{values.map((each) => <option key={each} value={each}>{text(each)}</option>)}</select></label>;
  const grid: Grid = { results, stages: results.stages.filter((stage) => stage.chip === chip), policy, across, down };
  return (
    <>
      <div class="choices">
        {choose("policy", policy, setPolicy, policies)}
        {choose("chip", chip, setChip, chips)}
        {choose("columns", across, setAcross, varied, (axis) => results.axes[axis]!)}
        {choose("rows", below, setBelow, varied, (axis) => results.axes[axis]!)}
      </div>
      {rest.length > 0 && <p>Of {rest.map((axis) => results.axes[axis]).join(" and ")} each cell shows the worst.</p>}
      <div class="columns">
        {kGrids.map((each) => <Heat key={each.title} grid={grid} {...each} file={`${file}-${each.file}`} />)}
      </div>
    </>
  );
}
