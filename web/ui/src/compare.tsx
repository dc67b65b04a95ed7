// Policies side by side, of results of the lab that somebody opens here. Nothing leaves the browser.
import { useState } from "preact/hooks";
import { named, nearestRival, points, sourcesOf } from "./report/words";
import { percent, unknown } from "./words";

interface Mean {
  mean?: number | null;
  low?: number;
  high?: number;
}
interface Policy {
  policy: string;
  delta?: number;
  known_apps?: number; // not there in files of older programs
  jobs: number;
  judged_jobs: number;
  broken_jobs: number;
  energy_saving_ratio: number | null;
  loss_ratio: { mean?: number | null };
  efficiency_gain_ratio: { mean?: number | null };
  worst_loss_ratio: number | null;
  worst_app?: string;
}
interface Results {
  name: string; // of the file
  experiment: string;
  delta: number;
  repetitions: number;
  stages: { title: string; apps: string[]; policies: Policy[] }[];
  // Not there in files of older programs.
  seed?: number;
  simulated?: boolean;
  run_version?: string;
  run_day?: string;
  experiment_digest?: string;
  workload_sources?: { chip: string; source: string; apps: number }[];
  headline?: string;
  overall?: { policy: string; delta: number; known_apps: number }[];
  differences?: { than: string; apps: number; jobs: number; energy_saving_ratio: Mean; loss_ratio: Mean }[];
}

const kSchema = "derate/lab-show/1";
const kMostBytes = 20e6;

async function read(file: File): Promise<Results> {
  if (file.size > kMostBytes) throw new Error(`${file.name} has ${Math.round(file.size / 1e6)} MB: allowed are 20`);
  let json: { schema?: string };
  try {
    json = JSON.parse(await file.text());
  } catch {
    throw new Error(`${file.name} is not JSON: derate lab show RESULTS.lab --json > results.json makes it`);
  }
  if (json.schema !== kSchema) throw new Error(`${file.name} is no output of derate lab show --json (schema ${kSchema})`);
  return { ...(json as Omit<Results, "name">), name: file.name };
}

/** Which run the figures are of, as the page of `derate report` says it. */
function origin(results: Results): string {
  return [
    results.simulated === undefined ? "" : results.simulated ? "simulated GPUs" : "a real GPU",
    results.workload_sources?.length ? `applications: ${sourcesOf(results.workload_sources)}` : "",
    results.simulated && results.seed !== undefined ? `seed ${results.seed}` : "",
    results.run_version === undefined ? "" : `derate ${[results.run_version, results.run_day].filter(Boolean).join(", ")}`,
    results.experiment_digest === undefined ? "" : `experiment ${results.experiment_digest}`,
  ].filter(Boolean).join("; ");
}

/** The headline's policy against the rival that is most like it, job by job. */
function Paired({ results }: { results: Results }) {
  const one = nearestRival(results.headline, results.overall ?? [], results.differences ?? []);
  if (results.headline === undefined || one === undefined) return null;
  return (
    <p>
      Job by job, {named(results.headline)} against {named(one.than)} saves{" "}
      {points(one.energy_saving_ratio, "more", "less")} of the energy and loses{" "}
      {points(one.loss_ratio, "more", "less")} of the performance, over {one.apps} applications and {one.jobs} jobs.
    </p>
  );
}

function Stage({ stage, delta }: { stage: Results["stages"][number]; delta: number }) {
  const most = Math.max(0.01, ...stage.policies.map((each) => each.energy_saving_ratio ?? 0));
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label={stage.title}>
        <table class="compared">
          <caption>{stage.title}: {stage.apps.length} applications</caption>
          <thead>
            <tr>
              <th scope="col">policy</th><th scope="col">energy saved</th><th scope="col"><span class="sr">as a bar</span></th>
              <th scope="col">performance</th><th scope="col">promised</th><th scope="col">efficiency</th><th scope="col">worst loss</th>
              <th scope="col" class="text">promise</th>
            </tr>
          </thead>
          <tbody>
            {stage.policies.map((each) => (
              <tr key={each.policy}>
                <th scope="row">{each.policy}{each.known_apps ? " †" : ""}</th>
                <td>{percent(each.energy_saving_ratio, 1)}</td>
                <td>
                  <svg class="bar short" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
                    <rect class="bar-all" width="100" height="6" />
                    <rect class="bar-part" width={100 * Math.max(0, each.energy_saving_ratio ?? 0) / most} height="6" />
                  </svg>
                </td>
                <td>{each.loss_ratio.mean == null ? unknown : percent(1 - each.loss_ratio.mean, 1)}</td>
                <td>{percent(1 - (each.delta ?? delta))}</td>
                <td>{each.efficiency_gain_ratio.mean == null ? unknown : `+${percent(each.efficiency_gain_ratio.mean, 1)}`}</td>
                <td>{percent(each.worst_loss_ratio, 1)} <span class="dim">{each.worst_app ?? ""}</span></td>
                <td class={`text ${each.broken_jobs > 0 ? "bad" : "good"}`}>
                  {each.broken_jobs > 0 ? `▼ broken: ${each.broken_jobs} of ${each.judged_jobs} jobs` : "✓ kept"}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {stage.policies.some((each) => each.known_apps) && <p class="dim">†: its priors were made with applications of this table; on other work the promise is harder to keep.</p>}
    </>
  );
}

export function CompareView() {
  const [results, setResults] = useState<Results[]>([]);
  const [refused, setRefused] = useState("");
  const open = async (files: FileList | null) => {
    setRefused("");
    try {
      setResults(await Promise.all([...(files ?? [])].map(read)));
    } catch (error) {
      setRefused((error as Error).message);
    }
  };
  return (
    <>
      <h1>Policies compared</h1>
      <p>
        <label>Results of the lab, as JSON{" "}
          <input type="file" accept=".json,application/json" multiple onChange={(event) => void open(event.currentTarget.files)} />
        </label>
      </p>
      <p role="alert" class="said">{refused}</p>
      {results.length === 0 && (
        <div class="empty">
          <p>The lab runs policies on simulated GPUs, or on this one, and keeps what they came to. Two commands make a file for this page, several can be opened side by side:</p>
          <p><code>derate lab run experiments/assure-chips.toml -o results.lab</code></p>
          <p><code>derate lab show results.lab --json &gt; results.json</code></p>
        </div>
      )}
      <div class="side-by-side">
        {results.map((each) => (
          <section key={each.name} aria-label={each.name}>
            <h2>{each.experiment} <span class="dim">{each.name}</span></h2>
            <p class="dim">{each.repetitions} repetition{each.repetitions === 1 ? "" : "s"}; {origin(each)}.</p>
            <Paired results={each} />
            {each.stages.map((stage) => <Stage key={stage.title} stage={stage} delta={each.delta} />)}
          </section>
        ))}
      </div>
    </>
  );
}
