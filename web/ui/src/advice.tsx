// What holds the work on a GPU back: watched for a minute, when somebody asks.
import { useState } from "preact/hooks";
import { useAsked } from "./live";
import type { Advice, AdviceAnswer, Gpu } from "./types";
import { percent } from "./words";

function One({ advice }: { advice: Advice }) {
  return (
    <li>
      <h3>{advice.title} <span class="tag">{advice.certainty}</span></h3>
      <dl>
        <dt>Because</dt><dd>{advice.evidence}</dd>
        <dt>To win</dt><dd>{advice.effect}</dd>
        <dt>Try</dt><dd><ul>{advice.tries.map((each) => <li key={each}>{each}</li>)}</ul></dd>
        <dt>More</dt><dd><a href={advice.page} rel="noreferrer" target="_blank">{new URL(advice.page).hostname}</a></dd>
      </dl>
    </li>
  );
}

function Told({ told }: { told: AdviceAnswer }) {
  const whole = told.watched_seconds >= 0.95 * told.wanted_seconds;
  const time = `${Math.floor(told.watched_seconds)} of ${told.wanted_seconds} s`;
  if (told.working_ratio == null) return <p role="status">Watching, {time}: nothing can be said yet.</p>;
  return (
    <>
      <p role="status">
        {whole ? `The last ${told.wanted_seconds} s: ` : `Watching, ${time}; so far: `}
        kernels ran {percent(told.working_ratio)} of the time.
        {told.advice.length === 0 && (whole ? " Nothing to advise." : " Nothing to advise yet.")}
      </p>
      {told.advice.length > 0 && <ol class="advice">{told.advice.map((each) => <One key={each.finding} advice={each} />)}</ol>}
      {!told.activity_counters && (
        <p class="dim">This GPU shows no activity counters (Hopper and later do): causes that only they tell apart are named together.</p>
      )}
    </>
  );
}

export function AdviceView({ gpu }: { gpu: Gpu }) {
  const [watched, setWatched] = useState<string>(); // which GPU's
  const watches = watched === gpu.uuid;
  const asked = useAsked<AdviceAnswer>(watches ? `advice?gpu=${gpu.uuid}` : undefined, 2000);
  const told = asked.value?.uuid === gpu.uuid ? asked.value : undefined;
  return (
    <>
      {!watches && (
        <p class="empty">
          Counters tell what keeps the work from going faster: its host, its data, launches, memory, heat.{" "}
          <button type="button" onClick={() => setWatched(gpu.uuid)}>watch it for a minute</button>
        </p>
      )}
      {watches && asked.error && !told && <p class="empty">{asked.error.message}</p>}
      {watches && told && <Told told={told} />}
      {watches && <p class="act"><button type="button" onClick={() => setWatched(undefined)}>stop watching</button></p>}
    </>
  );
}
