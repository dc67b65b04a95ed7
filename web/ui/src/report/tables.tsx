// The policies' figures, and what was measured of real work.
import type { ComponentChildren } from "preact";
import { percent, signed, unknown } from "./words";
import { saveCsv, Shape, type TableOf } from "./figure";
import { lookOf } from "./scale";
import { compared, placeOf, type App, type Figures, type Hindsight, type Policy, type Results, type Stage } from "./types";

function Wide({ title, table, note, children }: { title: string; table: { file: string; of: TableOf }; note?: ComponentChildren; children: ComponentChildren }) {
  return (
    <figure>
      <figcaption>
        <b>{title}</b>
        <span class="files"><button type="button" aria-label={`${title} as CSV`} onClick={() => saveCsv(table.file, table.of)}>CSV</button></span>
      </figcaption>
      {note && <p>{note}</p>}
      <div class="scroll" tabIndex={0} role="group" aria-label={title}><table>{children}</table></div>
    </figure>
  );
}

const interval = ({ low, high }: Figures) =>
  low === undefined ? null : <><br /><small>{(100 * low).toFixed(1)} to {(100 * high!).toFixed(1)}</small></>;

function Kept({ results, policy }: { results: Results; policy: Policy }) {
  const own = policy.delta === results.delta ? "" : ` (of ${percent(1 - policy.delta)})`;
  const apps = `${policy.apps_over} of ${policy.apps.length} apps`;
  if (policy.judged_jobs === 0) return <td class={policy.apps_over > 0 ? "text bad" : "text"}>no job of 30 s, {apps} over{own}</td>;
  if (policy.broken_jobs === 0 && policy.apps_over === 0) return <td class="text good">✓ kept{own}</td>;
  return <td class="text bad">▼ {policy.broken_jobs} of {policy.judged_jobs} jobs, {apps}{own}</td>;
}

const kHeads = ["policy", "efficiency", "energy saved", "mean loss", "worst application", "worst job", "probing", "changes/min", "fixed clock", "promise"];

export function PolicyTable({ results, stage, file }: { results: Results; stage: Stage; file: string }) {
  const hindsight = ([["oracle", stage.oracle], ["two clocks", stage.two_clocks]] as [string, Hindsight | undefined][]).filter(([, each]) => each);
  const csv: TableOf = {
    head: ["policy", "efficiency gain, %", "energy saved, %", "mean loss, %", "worst application's loss, %", "worst application", "worst job's loss, %", "probing, % of time", "clock changes a minute", "fixed clock's gain at the same loss, %", "broken jobs", "judged jobs"],
    rows: compared(results, stage).map((each) => [
      each.policy, 100 * each.efficiency_gain_ratio.mean, 100 * each.energy_saving_ratio, 100 * each.loss_ratio.mean, 100 * each.worst_loss_ratio, each.worst_app, 100 * each.worst_job_loss_ratio,
      100 * each.probing_ratio, each.clock_changes_per_minute, each.fixed_clock_gain_ratio === undefined ? null : 100 * each.fixed_clock_gain_ratio, each.broken_jobs, each.judged_jobs,
    ]),
  };
  return (
    <Wide title={`Policies on ${stage.title}`} table={{ file: `${file}-policies`, of: csv }}
          note={<><b>Loss</b>: performance lost. <b>Probing</b>: share of the time at clocks set to learn from. <b>Changes/min</b>: of the clock. <b>Fixed clock</b>: what one constant clock for all work gains at the same mean loss; a policy below it adds nothing. {hindsight.length > 0 && <><b>Oracle</b>, <b>two clocks</b>: the best constant clock, and the best mixture of two, for each application, known in advance.</>} {results.overall.some((each) => each.known_apps > 0) && <>†: its priors were made with applications of this table.</>}</>}>
      <thead><tr>{kHeads.map((each) => <th scope="col" key={each} class={each === "promise" || each === "worst application" ? "text" : undefined}>{each}</th>)}</tr></thead>
      <tbody>
        {compared(results, stage).map((each) => (
          <tr key={each.policy}>
            <th scope="row"><svg class="key" viewBox="-7 -7 14 14" aria-hidden="true"><Shape look={lookOf(placeOf(results, stage, each))} x={0} y={0} /></svg>{each.policy}{each.known_apps > 0 && <abbr title={`its priors were made with ${each.known_apps} of these ${stage.apps.length} applications`}>†</abbr>}</th>
            <td>{signed(each.efficiency_gain_ratio.mean)}{interval(each.efficiency_gain_ratio)}</td>
            <td>{percent(each.energy_saving_ratio, 1)}</td>
            <td>{percent(each.loss_ratio.mean, 1)}{interval(each.loss_ratio)}</td>
            <td class="text">{percent(each.worst_loss_ratio, 1)} <span class="dim">{each.worst_app}</span></td>
            <td>{percent(each.worst_job_loss_ratio, 1)}</td>
            <td>{percent(each.probing_ratio, 1)}</td>
            <td>{each.clock_changes_per_minute.toFixed(1)}</td>
            <td>{each.fixed_clock_gain_ratio === undefined ? unknown : signed(each.fixed_clock_gain_ratio)}</td>
            <Kept results={results} policy={each} />
          </tr>
        ))}
        {hindsight.map(([name, each]) => (
          <tr key={name} class="dim">
            <th scope="row">{name}</th>
            <td>{signed(each!.efficiency_gain_ratio)}</td><td>{percent(each!.energy_saving_ratio, 1)}</td><td>{percent(each!.loss_ratio, 1)}</td>
            <td class="text">{percent(each!.worst_loss_ratio, 1)} {each!.worst_app}</td>
            <td>{unknown}</td><td>{unknown}</td><td>{unknown}</td><td>{unknown}</td><td class="text">in hindsight</td>
          </tr>
        ))}
        {stage.policies.filter((each) => each.policy !== results.baseline && each.jobs === 0).map((each) => (
          <tr key={each.policy}><th scope="row">{each.policy}</th><td class="text bad" colSpan={9}>{each.failed_jobs > 0 ? "every job failed" : "not run"}</td></tr>
        ))}
      </tbody>
    </Wide>
  );
}

const kActivity = ["graphics", "sm", "occupancy", "tensor", "fp64", "fp32", "fp16", "integer", "dram"];

/** Three digits that count. */
function rate(value: number): string {
  const digits = Math.min(3, Math.max(0, 2 - Math.floor(Math.log10(value || 1))));
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function Measured({ stage, file }: { stage: Stage; file: string }) {
  const several = stage.policies.length > 1;
  const rows = stage.apps.flatMap((name) => stage.policies.flatMap((policy) => policy.apps.filter((app) => app.app === name).map((app) => ({ app, policy: policy.policy }))));
  const heads = ["command", ...(several ? ["policy"] : []), "rate", "power", "SM clock", "energy", ...kActivity];
  const numbers = (app: App) => [app.rate, app.work_unit, app.mean_power_watts, app.mean_clock_mhz, app.energy_joules, ...kActivity.map((key) => app.activity?.[key])];
  const csv = {
    head: ["command", "policy", "rate, 1/s", "unit", "power, W", "SM clock, MHz", "energy, J", ...kActivity.map((each) => `${each}, ratio`)],
    rows: rows.map(({ app, policy }) => [app.app, policy, ...(app.jobs > 0 ? numbers(app) : [])]),
  };
  return (
    <Wide title={`Measured on ${stage.title}`} table={{ file: `${file}-measured`, of: csv }}>
      <thead><tr>{heads.map((each) => <th scope="col" key={each}>{each}</th>)}</tr></thead>
      <tbody class="dense">
        {rows.map(({ app, policy }) => (
          <tr key={`${app.app} ${policy}`}>
            <th scope="row">{app.app}</th>
            {several && <td class="text">{policy}</td>}
            {app.jobs === 0 ? <td class="text bad" colSpan={4 + kActivity.length}>failed: {app.error}</td> : (
              <>
                <td>{rate(app.rate ?? 0)} <span class="dim">{app.work_unit}/s</span></td>
                <td>{Math.round(app.mean_power_watts)} W</td>
                <td>{app.mean_clock_mhz === undefined ? unknown : `${Math.round(app.mean_clock_mhz)} MHz`}</td>
                <td>{(app.energy_joules / 1000).toFixed(2)} kJ</td>
                {kActivity.map((key) => {
                  const share = app.activity?.[key];
                  return <td key={key} class="shade" style={share === undefined ? {} : { "--share": `${Math.round(55 * share)}%` }}>{percent(share)}</td>;
                })}
              </>
            )}
          </tr>
        ))}
      </tbody>
    </Wide>
  );
}
