// One file of results: what it says in a sentence and three numbers, then everything.
import { useState } from "preact/hooks";
import { counted, named, nearestRival, percent, points, signed, sourcesOf, watts } from "./words";
import { Applications, BesidePublished } from "./apps";
import { Scatter } from "./scatter";
import { Stress, variedAxes } from "./stress";
import { Measured, PolicyTable } from "./tables";
import { OneJob } from "./time";
import { compared, measuredApps, type Figures, type Overall, type Results, type Stage } from "./types";

const range = ({ low, high }: Figures) => (low === undefined ? "" : `95 %: ${(100 * low).toFixed(1)} to ${(100 * high!).toFixed(1)}`);

interface Headline {
  sentence: string;
  numbers: { title: string; value: string; beside: string; tone?: "good" | "bad" }[];
}

/** Of one policy over all stages. */
function judged(results: Results, all: Overall): Headline {
  const { broken_jobs: broken, judged_jobs: jobs, energy_saving_ratio: saving } = all;
  const promised = 1 - all.delta;
  const where = results.stages.length === 1 ? `on ${results.stages[0]!.title}` : `over ${counted(all.apps, "application")} in ${results.stages.length} stages`;
  const verdict = jobs === 0 ? "ran no job of 30 s, which a promise is judged by," : broken === 0 ? `kept ${percent(promised)} of performance in every job` : `broke its promise of ${percent(promised)} of performance in ${broken} of ${counted(jobs, "job")}`;
  const energy = saving.mean >= 0 ? `${percent(saving.mean, 1)} less energy` : `${percent(-saving.mean, 1)} more energy`;
  return {
    sentence: `${results.simulated ? "In simulation, " : ""}${named(all.policy)} ${verdict} ${where} ${broken === 0 && jobs > 0 ? "with" : "and took"} ${energy} than ${results.baseline}.`,
    numbers: [
      { title: "energy saved", value: percent(saving.mean, 1), beside: [range(saving), `efficiency ${signed(all.efficiency_gain_ratio.mean)}`].filter(Boolean).join("; ") },
      { title: "performance", value: percent(1 - all.loss_ratio.mean, 1), beside: `promised ${percent(promised)}; the worst job had ${percent(1 - all.worst_job_loss_ratio, 1)}` },
      { title: "promises broken", value: jobs === 0 ? "–" : `${broken} of ${jobs}`, beside: jobs === 0 ? "no job of 30 s" : "jobs of at least 30 s", tone: jobs === 0 ? undefined : broken === 0 ? "good" : "bad" },
    ],
  };
}

/** What was run, where its work is from, and how it can be run again. */
function Origin({ results }: { results: Results }) {
  const chips = [...new Set(results.stages.map((each) => each.chip))];
  const apps = results.workload_sources.reduce((sum, each) => sum + each.apps, 0);
  const what = results.simulated
    ? `Simulated ${chips.join(", ")}: ${counted(apps, "application")} (${sourcesOf(results.workload_sources)})`
    : `Measured on a real ${chips.join(", ")}${results.repetitions === 1 ? "; one repetition, so no intervals; driver version and temperature were not recorded" : ""}`;
  const when = [`derate ${results.run_version}`, results.run_day].filter(Boolean).join(", ");
  const digests = [results.experiment_digest && `experiment ${results.experiment_digest}`, results.tables_digest && `tables ${results.tables_digest}`].filter(Boolean).join(", ");
  return <p class="origin">{what}. {results.simulated && `Seed ${results.seed}. `}Run by {when}. {digests && <span class="digest">Digests: {digests}.</span>}</p>;
}

/** Whether the headline's priors know the applications, and which row was preferred to which. */
function PriorsNote({ results, first }: { results: Results; first: Overall }) {
  const known = results.overall.filter((each) => each.known_apps > 0 && each.jobs > 0);
  if (known.length === 0) return null;
  const rows = known.map((each) => `“${each.policy}”`).join(", ");
  const whole = `The priors of ${rows} were made with measurements of ${known[0]!.known_apps === first.apps ? "these" : `${known[0]!.known_apps} of these`} applications`;
  if (first.known_apps > 0)
    return <p class="bad">{whole}: on other work the promise is harder to keep.</p>;
  return <p>{whole}, so the headline is of “{first.policy}”, whose priors leave out the application that runs.</p>;
}

function Paired({ results }: { results: Results }) {
  const [chosen, setChosen] = useState("");
  if (results.differences.length === 0 || results.headline === undefined) return null;
  const rivals = results.differences;
  const one = rivals.find((each) => each.than === chosen) ?? nearestRival(results.headline, results.overall, rivals)!;
  return (
    <p class="paired">
      Job by job, {named(results.headline)} against{" "}
      <label><span class="sr">policy to compare with</span><select value={one.than} onChange={(event) => setChosen(event.currentTarget.value)}>{rivals.map((each) => <option key={each.than}>{each.than}</option>)}</select></label>
      {" "}saves {points(one.energy_saving_ratio, "more", "less")} of the energy and loses {points(one.loss_ratio, "more", "less")} of the performance, over {counted(one.apps, "application")} and {counted(one.jobs, "job")}.
    </p>
  );
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
  const all = results.overall.find((each) => each.policy === results.headline);
  const first = all?.policy;
  const { sentence, numbers } = all === undefined ? measured(results) : judged(results, all);
  const file = results.experiment.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "") || "experiment";
  return (
    <section aria-label={name}>
      <h1>{results.experiment}</h1>
      <Origin results={results} />
      <p class="sentence">{sentence}</p>
      <dl class="numbers">
        {numbers.map((each) => <div key={each.title} class={each.tone}><dt>{each.title}</dt><dd>{each.value}<small>{each.beside}</small></dd></div>)}
      </dl>
      {all && <PriorsNote results={results} first={all} />}
      <Paired results={results} />
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
        {results.place === "real" ? "Power is the GPU’s energy counter over the time. " : `Efficiency is performance per watt; loss is 1 − performance over ${results.baseline}’s in the same order, start-up and probing included, over whole jobs. Figures over several stages give each application the same weight. A promise is broken by a job that takes at least 30 s under the baseline and loses more. Intervals: percentile bootstrap over applications and jobs. `}
        Made by derate {results.version}.
      </footer>
    </section>
  );
}
