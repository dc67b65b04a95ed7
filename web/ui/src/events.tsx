// What happened: events of one kind that follow each other are one line, which opens.
import { useMemo } from "preact/hooks";
import { chosenEvents, folded, kindsOf, type Fold } from "./choose";
import { kMostEvents, type Query, type Route } from "./live";
import { Name } from "./name";
import type { DerateEvent, Gpu } from "./types";
import { clockTime, dayTime } from "./words";

function When({ event }: { event: DerateEvent }) {
  return <time dateTime={new Date(event.time_unix_seconds * 1000).toISOString()}>{dayTime(event.time_unix_seconds)}</time>;
}

function Folded({ fold }: { fold: Fold }) {
  const newest = fold.events[0]!, oldest = fold.events[fold.events.length - 1]!;
  return (
    <li class={fold.severity}>
      <When event={newest} /> <span class="tag">{fold.severity}</span>{" "}
      {fold.events.length === 1 ? <Name of={newest.message} /> : (
        <details>
          <summary>
            <b>{newest.event.replaceAll("_", " ")}</b> {fold.events.length} times
            {fold.gpus > 1 ? `, ${fold.gpus} GPUs` : ""}, since {clockTime(oldest.time_unix_seconds)}; the newest: <Name of={newest.message} />
          </summary>
          <ol class="folded">
            {fold.events.map((event) => <li key={event.id}><When event={event} /> <Name of={event.message} /></li>)}
          </ol>
        </details>
      )}
    </li>
  );
}

export function EventList({ folds }: { folds: Fold[] }) {
  return (
    <ul class="events">
      {folds.map((fold) => <Folded key={fold.events[fold.events.length - 1]!.id} fold={fold} />)}
    </ul>
  );
}

function Select({ name, value, all, choose }: { name: string; value?: string; all: [string, string][]; choose: (value: string) => void }) {
  return (
    <label>{name}{" "}
      <select value={value ?? ""} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="">all</option>
        {all.map(([key, words]) => <option key={key} value={key}>{words}</option>)}
      </select>
    </label>
  );
}

function Filters({ events, gpus, query, set }: { events: DerateEvent[]; gpus: Gpu[]; query: Query; set: (query: Query) => void }) {
  const any = query.severity || query.kind || query.gpu || query.after;
  return (
    <form class="tools" aria-label="which events" onSubmit={(event) => event.preventDefault()}>
      <Select name="At least" value={query.severity} all={[["warning", "warnings"], ["error", "errors"]]} choose={(severity) => set({ severity })} />
      <Select name="Kind" value={query.kind} all={kindsOf(events).map((kind) => [kind, kind.replaceAll("_", " ")])} choose={(kind) => set({ kind })} />
      <Select name="GPU" value={query.gpu} all={[...gpus.map((gpu): [string, string] => [String(gpu.index), `GPU ${gpu.index}`]), ["none", "the service"]]}
              choose={(gpu) => set({ gpu })} />
      {any && <button type="button" onClick={() => set({ severity: undefined, kind: undefined, gpu: undefined, after: undefined })}>show all</button>}
    </form>
  );
}

export function EventsView({ events, gpus, route }: { events: DerateEvent[]; gpus: Gpu[]; route: Route }) {
  const { severity, kind, gpu, after } = route.query;
  const shown = useMemo(() => chosenEvents(events, route.query), [events, severity, kind, gpu, after]);
  const folds = useMemo(() => folded(shown), [shown]);
  return (
    <>
      <h1>What happened in the last day</h1>
      <Filters events={events} gpus={gpus} query={route.query} set={route.set} />
      <p class="dim" role="status">
        {events.length >= kMostEvents ? `The ${kMostEvents} newest events; older ones: derate events. ` : ""}
        {shown.length < events.length ? `${shown.length} of ${events.length} shown. ` : ""}
        {after ? "Those since you were here last." : ""}
      </p>
      {folds.length === 0 ? <p class="empty">Nothing{shown.length < events.length ? " of that kind" : ""}.</p> : <EventList folds={folds} />}
    </>
  );
}
