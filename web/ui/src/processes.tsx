// The processes of all GPUs in one table, or on a narrow screen in one list.
import { useEffect, useRef, useState } from "preact/hooks";
import { ofHowMany, valueOf, within90, type ShownGpu } from "./known";
import type { Query, Route } from "./live";
import { Name, plainText } from "./name";
import {
  chosenRows, filterWords, jobOf, kColumnKeys, kFilterKeys, nobodysWatts, programOf, rowsOf, sortOf, sortWords, sortedRows,
  totalsOf, unknownBy, type Column, type Filter, type Row, type Sort,
} from "./process_rows";
import { duration, energy, gpuName, memory, percent, unknown, watts } from "./words";

const kNames: Record<Column, string> = {
  process: "process", gpu: "GPU", user: "user", job: "job or pod", memory: "memory", power: "power", share: "share", energy: "energy",
};
const kText: readonly Column[] = ["process", "gpu", "user", "job"];

function Power({ row }: { row: Row }) {
  const within = within90(row.tenant.sigma_watts);
  return <>{watts(row.tenant.power_watts)}{row.tenant.power_watts != null && within !== undefined && <span class="dim"> ± {Math.round(within).toLocaleString("en")}</span>}</>;
}
function Energy({ row: { tenant } }: { row: Row }) {
  return <>{energy(tenant.energy_joules)}{tenant.seconds != null && <span class="dim"> in {duration(tenant.seconds)}</span>}</>;
}
function Program({ row }: { row: Row }) {
  return <><Name of={programOf(row)} />{row.tenant.pid ? <span class="dim"> {row.tenant.pid}</span> : null}</>;
}

function Heading({ column, sort, set }: { column: Column; sort: Sort; set: (query: Query) => void }) {
  const sorts = sort.column === column;
  return (
    <th scope="col" class={kText.includes(column) ? "text" : undefined} aria-sort={sorts ? (sort.descends ? "descending" : "ascending") : undefined}>
      <button type="button" class="heading" onClick={() => set(sortWords(column, sort))}>
        {kNames[column]}<span aria-hidden="true" class="arrow">{sorts ? (sort.descends ? "▼" : "▲") : ""}</span>
      </button>
    </th>
  );
}

function Table({ rows, sort, set }: { rows: Row[]; sort: Sort; set: (query: Query) => void }) {
  return (
    <div class="scroll tall" tabIndex={0} role="region" aria-label="processes">
      <table class="processes">
        <thead>
          <tr>{kColumnKeys.map((column) => <Heading key={column} column={column} sort={sort} set={set} />)}</tr>
        </thead>
        <tbody>
          {rows.map((row) => {
            const job = jobOf(row), { user, memory_bytes, share_ratio } = row.tenant;
            return (
              <tr key={row.key}>
                <th scope="row" class="who"><Program row={row} /></th>
                <td class="text fit"><a href={`#/gpu/${row.gpu.index}`}>{gpuName(row.gpu)}</a></td>
                <td class="text who">{user ? <Name of={user} /> : unknown}</td>
                <td class="text who">{job ? <Name of={job} /> : unknown}</td>
                <td>{memory(memory_bytes)}</td>
                <td><Power row={row} /></td>
                <td>{percent(share_ratio)}</td>
                <td><Energy row={row} /></td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function List({ rows }: { rows: Row[] }) {
  return (
    <ul class="processes">
      {rows.map((row) => {
        const job = jobOf(row), { user, memory_bytes, share_ratio } = row.tenant;
        return (
          <li key={row.key}>
            <p class="first"><b><Program row={row} /></b> <a href={`#/gpu/${row.gpu.index}`}>{gpuName(row.gpu)}</a></p>
            {(user || job) && <p class="dim">{user && <Name of={user} />}{user && job ? ", " : ""}{job && <Name of={job} />}</p>}
            <p>
              <span><Power row={row} /></span>
              {share_ratio != null && <span>{percent(share_ratio)} <span class="dim">share</span></span>}
              {memory_bytes != null && <span>{memory(memory_bytes)} <span class="dim">memory</span></span>}
              <span><Energy row={row} /></span>
            </p>
          </li>
        );
      })}
    </ul>
  );
}

const kNarrow = "(max-width: 900px)";
function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => matchMedia(kNarrow).matches);
  useEffect(() => {
    const query = matchMedia(kNarrow);
    const changed = () => setNarrow(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return narrow;
}

const kAddressAfter = 300; // ms: browsers bound how often an address may change

function TextFilter({ route }: { route: Route }) {
  const [text, setText] = useState(route.query.text ?? "");
  const timer = useRef<ReturnType<typeof setTimeout>>();
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => setText(route.query.text ?? ""), [route.query.text]);
  const typed = (word: string) => {
    setText(word);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => route.set({ text: word.trim() || undefined }), kAddressAfter);
  };
  return (
    <label>Find{" "}
      <input type="search" value={text} placeholder="any name or pid" onInput={(event) => typed(event.currentTarget.value)} />
    </label>
  );
}

const kFilterNames: Record<Filter, string> = { user: "User", job: "Job", gpu: "GPU" };

function SortChoice({ sort, set }: { sort: Sort; set: (query: Query) => void }) {
  return (
    <label>Order{" "}
      <select value={sort.column} onChange={(event) => set(sortWords(event.currentTarget.value as Column, sort))}>
        {kColumnKeys.map((column) => <option key={column} value={column}>{kNames[column]}</option>)}
      </select>
      <button type="button" onClick={() => set(sortWords(sort.column, sort))}
              aria-label={sort.descends ? "the largest first; turn round" : "the smallest first; turn round"}>{sort.descends ? "▼" : "▲"}</button>
    </label>
  );
}

function Tools({ rows, sort, narrow, route }: { rows: Row[]; sort: Sort; narrow: boolean; route: Route }) {
  const any = route.query.text || kFilterKeys.some((key) => route.query[key]);
  return (
    <form class="tools" aria-label="which processes" onSubmit={(event) => event.preventDefault()}>
      {narrow && <SortChoice sort={sort} set={route.set} />}
      {kFilterKeys.map((key) => {
        const words = filterWords(rows, key, route.query[key]);
        return (words.length > 1 || route.query[key]) && (
          <label key={key}>{kFilterNames[key]}{" "}
            <select value={route.query[key] ?? ""} onChange={(event) => route.set({ [key]: event.currentTarget.value })}>
              <option value="">all</option>
              {words.map((word) => <option key={word} value={word}>{key === "gpu" ? `GPU ${word}` : plainText(word)}</option>)}
            </select>
          </label>
        );
      })}
      <TextFilter route={route} />
      {any && <button type="button" onClick={() => route.set({ user: undefined, job: undefined, gpu: undefined, text: undefined })}>show all</button>}
    </form>
  );
}

const counted = (count: number, what: string, whats = `${what}s`) => `${count.toLocaleString("en")} ${count === 1 ? what : whats}`;

/** "12 processes of 4 users on 6 GPUs: 1,234 W, 61 GiB of memory. 310 W more are nobody's." */
function Summary({ shown, all, gpus }: { shown: Row[]; all: Row[]; gpus: ShownGpu[] }) {
  const totals = totalsOf(shown);
  const narrowed = shown.length < all.length;
  const power = valueOf(totals.power), nobodys = nobodysWatts(gpus);
  return (
    <p class="summary">
      <b>{narrowed ? `${totals.processes.toLocaleString("en")} of ${counted(all.length, "process", "processes")}` : counted(totals.processes, "process", "processes")}</b>
      {totals.users > 0 && ` of ${counted(totals.users, "user")}`}
      {totals.gpus > 0 && ` on ${counted(totals.gpus, "GPU")}`}
      {power !== undefined && <>: <b>{watts(power)}</b>{ofHowMany(totals.power, "processes")}</>}
      {totals.memory.known > 0 && (
        <>
          {power === undefined ? ": " : ", "}<b>{memory(totals.memory.value)}</b> of memory
          {totals.memory.known < totals.memory.all && ` (${totals.memory.known} of ${totals.memory.all} processes report it)`}
        </>
      )}.
      {!narrowed && nobodys !== undefined && <span class="dim"> {watts(nobodys)} more are nobody's.</span>}
    </p>
  );
}

const kNamed = 6;
const named = (gpus: ShownGpu[]) =>
  gpus.slice(0, kNamed).map(gpuName).join(", ") + (gpus.length > kNamed ? ` and ${gpus.length - kNamed} more` : "");

/** The GPUs whose processes are not in the table, and why. */
function NotKnown({ gpus }: { gpus: ShownGpu[] }) {
  const unread = gpus.filter((gpu) => !gpu.seen.holds);
  return (
    <>
      {unread.length > 0 && (
        <p class="stale">{unread.length} of {counted(gpus.length, "GPU")} {unread.length === 1 ? "is" : "are"} not read: {named(unread)}. What runs there is not known.</p>
      )}
      {[...unknownBy(gpus)].map(([reason, which]) => (
        <p key={reason} class="dim">Not known of {named(which)}: <Name of={reason} />.</p>
      ))}
    </>
  );
}

const kMostRows = 300;

export function ProcessesView({ gpus, quiet, route }: { gpus: ShownGpu[]; quiet: boolean; route: Route }) {
  const narrow = useNarrow();
  const all = rowsOf(gpus);
  const sort = sortOf(route.query);
  const rows = sortedRows(chosenRows(all, route.query), sort);
  const first = rows.slice(0, kMostRows);
  if (quiet)
    return (
      <>
        <h1>Processes</h1>
        <p class="empty">Which processes run is {gpus[0]?.seen.words ?? "not known"}.</p>
      </>
    );
  if (gpus.length === 0) return <p class="empty">derated has no GPU open now. <a href="#/">The fleet</a> shows why.</p>;
  return (
    <>
      <h1>Processes</h1>
      <Summary shown={rows} all={all} gpus={gpus} />
      <NotKnown gpus={gpus} />
      <Tools rows={all} sort={sort} narrow={narrow} route={route} />
      {rows.length === 0 ? <p class="empty">{all.length === 0 ? "No process uses a GPU that is read." : "No process is like that."}</p>
        : narrow ? <List rows={first} /> : <Table rows={first} sort={sort} set={route.set} />}
      {rows.length > first.length && <p class="dim">The first {kMostRows} of {rows.length.toLocaleString("en")}: filters show others.</p>}
      {rows.length > 0 && <p class="dim">Power: 90 % sure within ±. Energy: of the time for which derated has counted the process.</p>}
    </>
  );
}
