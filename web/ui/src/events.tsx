// What happened: derated folds events of one kind that follow each other into a line, which opens.
import { useEffect, useMemo, useState } from "preact/hooks";
import { get } from "./api";
import { chosenEvents, countOf, kindsOf } from "./choose";
import { eventsPath, kMostLines, useAsked, type Query, type Route } from "./live";
import { AsOf } from "./as_of";
import { Name } from "./name";
import type { DerateEvent, EventsAnswer, Gpu } from "./types";
import { clockTime, dayTime } from "./words";

function When({ event }: { event: DerateEvent }) {
  return <time dateTime={new Date(event.time_unix_seconds * 1000).toISOString()}>{dayTime(event.time_unix_seconds)}</time>;
}

const kMostOpened = 200;

/** Those of its kind in its time, the newest first. */
async function membersOf(line: DerateEvent): Promise<DerateEvent[]> {
  const from = Math.floor(line.first_unix_seconds ?? line.time_unix_seconds), to = Math.ceil(line.time_unix_seconds) + 1;
  const { events } = await get<EventsAnswer>(`events?from=@${from}&to=@${to}&most=10000${line.gpu_index === undefined ? "" : `&gpu=${line.gpu_index}`}`);
  return events.filter((each) => each.event === line.event && each.severity === line.severity && each.id <= line.id).reverse();
}

function Members({ line }: { line: DerateEvent }) {
  const [members, setMembers] = useState<DerateEvent[] | string>();
  useEffect(() => {
    let ended = false;
    membersOf(line).then((told) => ended || setMembers(told), (error: Error) => ended || setMembers(error.message));
    return () => { ended = true; };
  }, [line.id]);
  if (members === undefined) return <p class="dim">Asking derated…</p>;
  if (typeof members === "string") return <p class="dim"><Name of={members} /></p>;
  return (
    <>
      <ol class="folded" tabIndex={0}>
        {members.slice(0, kMostOpened).map((event) => <li key={event.id}><When event={event} /> <Name of={event.message} /></li>)}
      </ol>
      {members.length > kMostOpened && <p class="dim">The {kMostOpened} newest of {members.length.toLocaleString("en")}.</p>}
      {members.length > line.count! && <p class="dim">All of the kind '{line.event.replaceAll("_", " ")}' in that time: {members.length}.</p>}
    </>
  );
}

function Line({ line }: { line: DerateEvent }) {
  const [open, setOpen] = useState(false);
  return (
    <li class={line.severity}>
      <When event={line} /> <span class="tag">{line.severity}</span>{" "}
      {(line.count ?? 1) === 1 ? <Name of={line.message} /> : (
        <details onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>
            <Name of={line.message} />{line.first_unix_seconds != null && `, since ${clockTime(line.first_unix_seconds)}`}
          </summary>
          {open && <Members line={line} />}
        </details>
      )}
    </li>
  );
}

/** The newest first. */
export function EventList({ lines }: { lines: DerateEvent[] }) {
  return <ul class="events">{[...lines].reverse().map((line) => <Line key={line.id} line={line} />)}</ul>;
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

const counted = (count: number, what: string) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

/** "The 2,110 newest of 3,037 events: 1,450 errors and 40 warnings." */
function countWords({ events, total, warnings, errors }: EventsAnswer): string {
  const listed = countOf(events);
  const all = total ?? listed;
  return (listed < all ? `The ${listed.toLocaleString("en")} newest of ` : "") + counted(all, "event") +
    (errors == null || warnings == null ? "" : errors + warnings === 0 ? ", none of them an error or a warning"
      : `: ${counted(errors, "error")} and ${counted(warnings, "warning")}`) + ".";
}

const kEveryMs = 30_000;

/** `newest`: the id of the newest event, with which the answer is asked anew. */
export function EventsView({ newest, gpus, route }: { newest: number; gpus: Gpu[]; route: Route }) {
  const asked = useAsked<EventsAnswer>(eventsPath(kMostLines, route.query), kEveryMs, newest);
  const answer = asked.value;
  const shown = useMemo(() => chosenEvents(answer?.events ?? [], route.query), [answer, route.query.severity, route.query.kind, route.query.gpu]);
  const lines = answer?.events ?? [];
  const head = (
    <>
      <h1>What happened in the last day</h1>
      <AsOf live={asked} />
      <Filters events={lines} gpus={gpus} query={route.query} set={route.set} />
    </>
  );
  if (!answer) return <>{head}<p class="empty"><Name of={asked.error ? asked.error.message : "Asking derated…"} /></p></>;
  return (
    <>
      {head}
      <p class="dim" role="status">
        {countWords(answer)}
        {route.query.after ? " Those since you were here last." : ""}
        {shown.length < lines.length ? ` Shown: ${counted(countOf(shown), "event")}.` : ""}
        {countOf(lines) < (answer.total ?? 0) && <> Older ones: <code>derate events</code></>}
      </p>
      {shown.length === 0 ? <p class="empty">Nothing{shown.length < lines.length ? " of that kind" : ""}.</p> : <EventList lines={shown} />}
    </>
  );
}
