// One file of results: what it says in a sentence and three numbers, then everything.
import { useState } from "preact/hooks";
import { counted, percent, signed, watts } from "./words";
import { Applications, BesidePublished } from "./apps";
import { Scatter } from "./scatter";
import { Stress, variedAxes } from "./stress";
import { Measured, PolicyTable } from "./tables";
import { OneJob } from "./time";
import { compared, measuredApps, type Policy, type Results, type Stage } from "./types";

const isKept = (policy: Policy) => policy.broken_jobs === 0 && policy.apps_over === 0;
const byGain = (a: Policy, b: Policy) => b.efficiency_gain_ratio.mean - a.efficiency_gain_ratio.mean;

/** The default policy where it was run; else who gains most of those that kept their promise, or of all. */
function leader(results: Results): Policy | undefined {
  const policies = compared(results, results.stages[0]!);
  return policies.find((each) => each.policy === "assure") ?? policies.filter(isKept).sort(byGain)[0] ?? policies.sort(byGain)[0];
}

interface Headline {
  sentence: string;
  numbers: { title: string; value: string; beside: string; tone?: "good" | "bad" }[];
}

const mean = (values: number[]) => values.reduce((sum, each) => sum + each, 0) / values.length;

/** Of one policy over all stages, each with the same weight. */
function judged(results: Results, name: string): Headline {
  const all = results.stages.flatMap((stage) => compared(results, stage).filter((each) => each.policy === name).map((policy) => ({ stage, policy })));
  const broken = all.reduce((sum, { policy }) => sum + policy.broken_jobs, 0), jobs = all.reduce((sum, { policy }) => sum + policy.judged_jobs, 0);
  const promised = 1 - all[0]!.policy.delta;
  const saving = mean(all.map(({ policy }) => policy.energy_saving_ratio)), loss = mean(all.map(({ policy }) => policy.loss_ratio.mean));
  const gain = mean(all.map(({ policy }) => policy.efficiency_gain_ratio.mean));
  const worst = all.reduce((a, b) => (b.policy.worst_job_loss_ratio > a.policy.worst_job_loss_ratio ? b : a));
  const where = results.stages.length === 1 ? `on ${all[0]!.stage.title}` : `over ${results.stages.length} stages`;
  const only = all.length === 1 ? all[0]!.policy : undefined;
  const verdict = jobs === 0 ? "ran no job of 30 s, which a promise is judged by," : broken === 0 ? `kept ${percent(promised)} of performance in every job` : `broke its promise of ${percent(promised)} of performance in ${broken} of ${counted(jobs, "job")}`;
  const energy = saving >= 0 ? `${percent(saving, 1)} less energy` : `${percent(-saving, 1)} more energy`;
  const range = only?.efficiency_gain_ratio.low === undefined ? "" : ` (95 %: ${signed(only.efficiency_gain_ratio.low)} to ${signed(only.efficiency_gain_ratio.high!)})`;
  return {
    sentence: `${name} ${verdict} ${where} ${broken === 0 && jobs > 0 ? "with" : "and took"} ${energy} than ${results.baseline}.`,
    numbers: [
      { title: "energy saved", value: percent(saving, 1), beside: `efficiency ${signed(gain)}${range}` },
      { title: "performance", value: percent(1 - loss, 1), beside: `promised ${percent(promised)}; the worst job had ${percent(1 - worst.policy.worst_job_loss_ratio, 1)}` },
      { title: "promises broken", value: jobs === 0 ? "–" : `${broken} of ${jobs}`, beside: jobs === 0 ? "no job of 30 s" : "jobs of at least 30 s", tone: jobs === 0 ? undefined : broken === 0 ? "good" : "bad" },
    ],
  };
}

/** Of real work under no policy of ours. */
function measured(results: Results): Headline {
  const stage = results.stages[0]!;
  const apps = measuredApps(stage.policies[0]!).sort((a, b) => a.mean_power_watts - b.mean_power_watts);
  const low = apps[0], high = apps.at(-1);
  const between = low && high ? ` drew from ${watts(low.mean_power_watts)} to ${watts(high.mean_power_watts)}` : " failed";
  return {
    sentence: `${counted(stage.apps.length, "command")} on ${stage.title}${between}; nothing was set.`,
    numbers: !low || !high ? [] : [
      { title: "least power", value: watts(low.mean_power_watts), beside: low.app },
      { title: "most power", value: watts(high.mean_power_watts), beside: high.app },
      { title: "energy in all", value: `${(apps.reduce((sum, each) => sum + each.energy_joules, 0) / 1000).toFixed(1)} kJ`, beside: counted(apps.length, "command") },
    ],
  };
}

function about(results: Results): string {
  if (results.place === "real") return `${counted(results.repetitions, "repetition")}, after ${results.idle_seconds} s idle.`;
  const jobs = "work_s" in results.axes ? "Jobs" : `${results.work_seconds} s jobs`;
  const idle = "idle_s" in results.axes ? "" : ` after ${results.idle_seconds} s idle`;
  return `${jobs}${idle}, ${counted(results.repetitions, "repetition")}${results.place === "served" ? ", in real time" : ""}; the promise: performance at least ${percent(1 - results.delta)} of ${results.baseline}’s.`;
}

function StageView({ results, stage, first, file }: { results: Results; stage: Stage; first?: string; file: string }) {
  const some = compared(results, stage).length > 0;
  return (
    <>
      {results.place === "real" && (
        <>
          <p>Means over each command’s own time. Activity is the share of cycles in which a unit was busy, of dram the share of the bandwidth, as the GPU’s counters have it.</p>
          <Measured stage={stage} file={file} />
        </>
      )}
      {stage.policies.length > 1 && <PolicyTable results={results} stage={stage} file={file} />}
      {some && (
        <>
          <Scatter results={results} stage={stage} file={file} />
          <h2>Application by application</h2>
          <Applications results={results} stage={stage} first={first!} file={file} />
        </>
      )}
      {stage.published && (
        <>
          <h2>Beside the published figures</h2>
          <BesidePublished results={results} stage={stage} file={file} />
        </>
      )}
    </>
  );
}

export function Report({ results, name }: { results: Results; name: string }) {
  const [chosen, setChosen] = useState(0);
  const first = leader(results)?.policy;
  const { sentence, numbers } = first === undefined ? measured(results) : judged(results, first);
  const file = results.experiment.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "") || "experiment";
  return (
    <section aria-label={name}>
      <h1>{results.experiment}</h1>
      <p class="sentence">{sentence}</p>
      <dl class="numbers">
        {numbers.map((each) => <div key={each.title} class={each.tone}><dt>{each.title}</dt><dd>{each.value}<small>{each.beside}</small></dd></div>)}
      </dl>
      <p>{about(results)}</p>
      {results.sessions_run < results.sessions && <p class="bad">Not whole: {results.sessions_run} of {results.sessions} sessions have run.</p>}
      {variedAxes(results).length > 0 && first !== undefined && <><h2>Under stress</h2><Stress results={results} first={first} file={file} /></>}
      {results.stages.length > 1 && (
        <>
          <h2>By stage</h2>
          <label>stage <select value={chosen} onChange={(event) => setChosen(Number(event.currentTarget.value))}>{results.stages.map((each, i) => <option key={each.title} value={i}>{each.title}</option>)}</select></label>
        </>
      )}
      <StageView results={results} stage={results.stages[chosen]!} first={first} file={file} />
      {results.traces.length > 0 && (
        <>
          <h2>One job in time</h2>
          <p>Shaded: at clocks that were set to learn from. A dot below says what was decided then.</p>
          <OneJob results={results} first={first} file={file} />
        </>
      )}
      <footer>
        {results.place === "real" ? "Power is the GPU’s energy counter over the time. " : `Efficiency is performance per watt; loss is 1 − performance over ${results.baseline}’s in the same order, start-up and probing included, over whole jobs. A promise is broken by a job that takes at least 30 s under the baseline and loses more. Intervals: percentile bootstrap over applications and jobs. `}
        Made by derate {results.version}.
      </footer>
    </section>
  );
}
