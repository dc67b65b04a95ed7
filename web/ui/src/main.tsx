import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Gone, Refused, beginSession, onSession } from "./api";
import { Fleet } from "./fleet";
import { OneGpu } from "./gpu";
import { CompareView } from "./compare";
import { EventsView } from "./events";
import { JobsView, OneJob } from "./jobs";
import { ageSeconds, shownGpus, timeOf, type Heard, type ShownGpu } from "./known";
import { addressOf, useAsked, useEvents, useQuiet, useRoute, useSeconds, type Route } from "./live";
import { Name, plainText } from "./name";
import { ProcessesView } from "./processes";
import { SavingsView } from "./savings";
import { chosenEvents } from "./choose";
import type { DerateEvent, Gpu, Savings, Status } from "./types";
import { clockTime, dayTime, zone } from "./words";

const kViews = [
  { path: "", name: "Fleet" },
  { path: "processes", name: "Processes" },
  { path: "savings", name: "Savings" },
  { path: "events", name: "Events" },
  { path: "jobs", name: "Training" },
  { path: "compare", name: "Compare" },
] as const;

function NoSession() {
  return (
    <main class="alone">
      <h1>Derate</h1>
      <p>
        This address was used already, or this browser has forgotten it. Run <code>derate ui</code> and open the
        address that it prints: this tab then goes on by itself.
      </p>
    </main>
  );
}

function sentenceOf(error?: Error): string {
  if (error instanceof Gone && error.agent)
    return `${error.message}. Run it again, and open the address that it prints`;
  if (error instanceof Refused && error.status === 401)
    return "this page is of a `derate ui` that has ended: open the address that the new one has printed";
  return error instanceof Gone || error instanceof Refused ? error.message : error ? `no answer (${error.message})` : "no answer";
}

/** Says that nobody answers, from when on nothing is known, and for how long that has been. */
function Trouble({ quiet, error, heard }: { quiet: boolean; error?: Error; heard?: Heard }) {
  const now = useSeconds(quiet);
  if (!quiet) return <div role="status" aria-live="assertive" />;
  const sentence = sentenceOf(error);
  return (
    <div role="status" aria-live="assertive" class="trouble">
      <Name of={sentence} />. {heard ? `Nothing is known since ${timeOf(heard.unix, heard.unix)}` : "Nothing is known yet"}
      {heard && <span aria-hidden="true"> ({Math.round(ageSeconds(heard, now))} s)</span>}. Asking again.
    </div>
  );
}

const kRead = "derate-events-read"; // the newest event that somebody has looked at

/** Of the warnings and errors those that came since the events were looked at; folded, as they are shown. */
function useUnread(events: DerateEvent[], looking: boolean): { count: number; after: number } {
  const [read, setRead] = useState(() => Number(localStorage.getItem(kRead) ?? 0));
  const newest = events.reduce((most, event) => Math.max(most, event.id), 0);
  useEffect(() => {
    // Ids begin anew with a new history.
    if (!looking || newest === 0 || newest === read) return;
    localStorage.setItem(kRead, String(newest));
    setRead(newest);
  }, [looking, newest]);
  const after = read > newest ? 0 : read;
  const count = useMemo(
    () => chosenEvents(events, { severity: "warning", after: String(after) }).length, [events, after]);
  return { count, after };
}

function Head({ view, status, heard, unread }: { view: string; status?: Status; heard?: Heard; unread: { count: number; after: number } }) {
  return (
    <header>
      <a href="#/" class="brand">Derate</a>
      {status?.host && <b class="host" title={plainText(status.host)}><Name of={status.host} /></b>}
      <nav aria-label="views">
        {kViews.map((each) => (
          <a key={each.path} aria-current={view === each.path ? "page" : undefined}
             href={each.path === "events" && unread.count > 0 ? addressOf(["events"], { severity: "warning", after: String(unread.after) }) : `#/${each.path}`}>
            {each.name}{each.path === "events" && unread.count > 0 ? <span class="count"> {unread.count}<span class="sr"> not read</span></span> : null}
          </a>
        ))}
      </nav>
      {heard && <span class="as-of dim">as of {clockTime(heard.unix)} {zone(heard.unix)}</span>}
    </header>
  );
}

function titleOf(view: string, parts: string[]): string {
  if (view === "gpu") return `GPU ${parts[1] ?? ""}`;
  return kViews.find((each) => each.path === view)?.name ?? "";
}

function NoView({ name }: { name: string }) {
  return (
    <p class="empty">
      There is no view '<Name of={name} />' here. There are{" "}
      {kViews.map((each, i) => <>{i > 0 ? ", " : ""}<a key={each.path} href={`#/${each.path}`}>{each.name}</a></>)}.
    </p>
  );
}

interface ViewProperties {
  route: Route;
  status?: Status;
  gpus: ShownGpu[];
  quiet: boolean;
  savings?: Savings;
  newest: number; // the id of the newest event
  heard?: Heard;
}

function View({ route, status, gpus, quiet, savings, newest, heard }: ViewProperties) {
  const [view = "", which] = route.parts;
  if (!kViews.some((each) => each.path === view) && view !== "gpu") return <NoView name={view} />;
  if (view === "savings") return <SavingsView />;
  if (view === "jobs") return which ? <OneJob key={which} name={which} /> : <JobsView />;
  if (view === "compare") return <CompareView />;
  if (view === "events") return <EventsView newest={newest} gpus={gpus} route={route} />;
  if (!status) return quiet ? null : <p class="empty">Asking derated…</p>;
  if (view === "") return <Fleet status={status} gpus={gpus} savings={savings} quiet={quiet} route={route} />;
  if (view === "processes") return <ProcessesView gpus={gpus} quiet={quiet} route={route} />;
  const gpu = gpus.find((each) => String(each.index) === which);
  if (!gpu) return <p class="empty">GPU <Name of={which ?? ""} /> is not here. <a href="#/">All GPUs</a></p>;
  return <OneGpu key={gpu.uuid} gpu={gpu} newest={newest} role={status.role} now={heard?.unix} route={route} />;
}

/** On paper, where no address bar and no clock is: which machine, when, and where that was. */
function Printed({ status, heard }: { status?: Status; heard?: Heard }) {
  if (!heard) return null;
  return <p class="printed">{plainText(status?.host ?? "")} {dayTime(heard.unix)} {zone(heard.unix)} {location.href}</p>;
}

const kEveryMs = 1000;

function App() {
  const route = useRoute();
  const status = useAsked<Status>("status", kEveryMs);
  const quiet = useQuiet(status, kEveryMs);
  const day = new Date();
  day.setHours(0, 0, 0, 0);
  const savings = useAsked<Savings>(`savings?by=gpu&from=${encodeURIComponent("@" + day.getTime() / 1000)}`, 30_000);
  const events = useEvents();
  const view = route.parts[0] ?? "";
  const unread = useUnread(events.lines, view === "events");
  const before = useRef(new Map<string, Gpu>());
  const gpus = useMemo(
    () => (status.value && status.heard ? shownGpus(status.value, status.heard, quiet, before.current) : []),
    [status.value, quiet]);
  const place = route.parts.join("/");
  const moved = useRef(false);
  useEffect(() => {
    // Who goes to another view begins at its top; who has just come begins at the page's.
    if (moved.current) {
      document.querySelector("main")?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    moved.current = true;
  }, [place]);
  useEffect(() => {
    document.title = [titleOf(view, route.parts), plainText(status.value?.host ?? ""), "Derate"].filter(Boolean).join(" · ");
  }, [place, status.value?.host]);
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.querySelector("main")?.focus(); }}>
        to the content
      </a>
      <Head view={view} status={status.value} heard={status.heard} unread={unread} />
      <Trouble quiet={quiet} error={status.error} heard={status.heard} />
      <Printed status={status.value} heard={status.heard} />
      <main id="main" tabIndex={-1}>
        <View route={route} status={status.value} gpus={gpus} quiet={quiet} savings={savings.value} newest={events.newest} heard={status.heard} />
      </main>
    </>
  );
}

const place = document.getElementById("app")!;
const show = (known: boolean) => render(known ? <App /> : <NoSession />, place);
onSession(() => show(true));
beginSession().then(show, () => show(false));
