// Training that recurs: its jobs, their trials, and what was learned of them.
import { notKnown } from "./known";
import { useAsked, useQuiet } from "./live";
import { AsOf } from "./as_of";
import { Name } from "./name";
import { dayTime, duration, energy, unknown } from "./words";

interface Job {
  spec: { name: string; batch_sizes: number[]; default: number; target: number; lower_is_better?: boolean };
  trials?: number;
  recurrences?: number;
  reached?: number;
  cheapest_joules?: number;
  cheapest_batch_size?: number;
  running?: number;
}
interface Trial {
  trial: number;
  state: string;
  recurrence?: number;
  attempt?: number;
  batch_size?: number;
  exploring?: boolean;
  epochs?: number;
  metric?: number;
  cost_joules?: number;
  energy_joules?: number;
  time_seconds?: number;
  why?: string;
  began_unix_seconds?: number;
}

function NoJobs() {
  return (
    <div class="empty">
      <p>No job that recurs is known here. A training that runs again and again can find the batch size and the power limit of least cost by itself:</p>
      <p><code>derate tune job create bert --batch-sizes 32,64,128 --default 64 --target 0.8 --max-epochs 40</code></p>
      <p><code>derate tune run --job bert -- python train.py --batch-size {"{batch_size}"}</code></p>
    </div>
  );
}

const kEveryMs = 5000;

export function JobsView() {
  const asked = useAsked<{ jobs: Job[]; more_after?: string }>("tune-job-list", kEveryMs);
  const quiet = useQuiet(asked, kEveryMs);
  if (asked.error && !asked.value) return <p class="empty">{asked.error.message}</p>;
  if (!asked.value) return <p class="empty">Asking derated…</p>;
  const { jobs, more_after } = asked.value;
  return (
    <>
      <h1>Training that recurs</h1>
      <AsOf live={asked} />
      {jobs.length === 0 && <NoJobs />}
      {jobs.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="jobs">
          <table class="jobs">
            <thead>
              <tr>
                <th scope="col">job</th><th scope="col">runs</th><th scope="col">reached their target</th>
                <th scope="col">cheapest run</th><th scope="col">its batch size</th><th scope="col">now</th>
              </tr>
            </thead>
            <tbody>
              {jobs.map((job) => (
                <tr key={job.spec.name}>
                  <th scope="row"><a href={`#/jobs/${encodeURIComponent(job.spec.name)}`}><Name of={job.spec.name} /></a></th>
                  <td>{job.recurrences ?? 0}</td>
                  <td>{job.reached ?? 0}</td>
                  <td>{energy(job.cheapest_joules)}</td>
                  <td>{job.cheapest_batch_size ?? unknown}</td>
                  <td>{quiet ? notKnown(asked.heard?.unix, asked.heard?.unix ?? 0) : job.running != null ? `trial ${job.running}` : "no trial"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {more_after && <p class="dim">The first {jobs.length}; the others: <code>derate tune job list</code></p>}
    </>
  );
}

export function OneJob({ name }: { name: string }) {
  const asked = useAsked<{ job?: Job; history?: Trial[]; more_before?: number }>(
    `tune-job-show?job=${encodeURIComponent(name)}`, 3000);
  if (asked.error && !asked.value) return <p class="empty">{asked.error.message}. <a href="#/jobs">All jobs</a></p>;
  const job = asked.value?.job;
  if (!job) return <p class="empty">Asking derated…</p>;
  const trials = asked.value?.history ?? [];
  return (
    <>
      <p><a href="#/jobs">← all jobs</a></p>
      <h1><Name of={job.spec.name} /></h1>
      <AsOf live={asked} />
      <p class="dim">
        Batch sizes {job.spec.batch_sizes.join(", ")}; without tuning {job.spec.default}. Done when its metric is {job.spec.target} or{" "}
        {job.spec.lower_is_better ? "less" : "more"}. {job.reached ?? 0} of {job.recurrences ?? 0} runs got there
        {job.cheapest_joules != null && `, the cheapest for ${energy(job.cheapest_joules)} with batch size ${job.cheapest_batch_size}`}.
      </p>
      {trials.length === 0 && <p class="empty">No trial yet: <code>derate tune run --job <Name of={job.spec.name} /> -- COMMAND</code></p>}
      {trials.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="trials">
          <table class="trials">
            <caption>Trials, the newest first{asked.value?.more_before != null ? "; there are older ones" : ""}</caption>
            <thead>
              <tr>
                <th scope="col">trial</th><th scope="col">run</th><th scope="col">batch size</th><th scope="col" class="text">came to</th>
                <th scope="col">epochs</th><th scope="col">metric</th><th scope="col">energy</th><th scope="col">cost</th>
                <th scope="col">time</th><th scope="col">began</th>
              </tr>
            </thead>
            <tbody>
              {trials.map((trial) => (
                <tr key={trial.trial}>
                  <th scope="row">{trial.trial}</th>
                  <td>{trial.recurrence ?? unknown}{(trial.attempt ?? 1) > 1 ? `, try ${trial.attempt}` : ""}</td>
                  <td>{trial.batch_size || unknown}</td>
                  <td class="text">{trial.state}{trial.exploring ? <span class="dim">, to learn</span> : null}</td>
                  <td>{trial.epochs?.toLocaleString("en", { maximumFractionDigits: 1 }) ?? unknown}</td>
                  <td>{trial.metric?.toLocaleString("en", { maximumSignificantDigits: 4 }) ?? unknown}</td>
                  <td>{energy(trial.energy_joules)}</td>
                  <td>{energy(trial.cost_joules)}</td>
                  <td>{duration(trial.time_seconds)}</td>
                  <td>{trial.began_unix_seconds ? dayTime(trial.began_unix_seconds) : unknown}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
