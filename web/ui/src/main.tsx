import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Gone, Refused, beginSession } from "./api";
import { Fleet } from "./fleet";
import { EventList, OneGpu } from "./gpu";
import { CompareView } from "./compare";
import { JobsView, OneJob } from "./jobs";
import { useAsked, useEvents, useRoute } from "./live";
import { SavingsView } from "./savings";
import type { Savings, Status } from "./types";
import { clockTime } from "./words";

const kViews = [
  { path: "", name: "Fleet" },
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
        This address was used already, or this browser has forgotten it. <code>derate ui</code> makes
        another one.
      </p>
    </main>
  );
}

function Trouble({ error, since }: { error?: Error; since?: number }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  if (!error) return <div role="status" aria-live="assertive" />;
  const seconds = Math.max(0, Math.round((now - (since ?? now)) / 1000));
  return (
    <div role="status" aria-live="assertive" class="trouble">
      {error instanceof Refused
        ? error.message
        : `${error instanceof Gone ? error.message : "no answer"}: what is shown is ${seconds} s old. Asking again each second.`}
    </div>
  );
}

function App() {
  const route = useRoute();
  const status = useAsked<Status>("status", 1000);
  const day = new Date();
  day.setHours(0, 0, 0, 0);
  const savings = useAsked<Savings>(`savings?by=gpu&from=${encodeURIComponent("@" + day.getTime() / 1000)}`, 30_000);
  const events = useEvents();
  const view = route[0] ?? "";
  const moved = useRef(false);
  useEffect(() => {
    const name = kViews.find((each) => each.path === view)?.name ?? (view === "gpu" ? `GPU ${route[1]}` : "");
    document.title = name ? `${name} · Derate` : "Derate";
    // Who goes to another view begins at its top; who has just come begins at the page's.
    if (moved.current) document.querySelector("main")?.focus();
    moved.current = true;
  }, [route.join("/")]);
  const gpu = view === "gpu" ? status.value?.gpus.find((each) => String(each.index) === route[1]) : undefined;
  const grave = events.filter((event) => event.severity !== "info").length;
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.querySelector("main")?.focus(); }}>
        to the content
      </a>
      <header>
        <a href="#/" class="brand">Derate</a>
        <nav aria-label="views">
          {kViews.map((each) => (
            <a key={each.path} href={`#/${each.path}`} aria-current={view === each.path ? "page" : undefined}>
              {each.name}{each.path === "events" && grave > 0 ? <span class="count"> {grave}<span class="sr"> warnings</span></span> : null}
            </a>
          ))}
        </nav>
        {status.at && <span class="as-of dim">as of {clockTime(status.at / 1000)}</span>}
      </header>
      <Trouble error={status.error} since={status.since} />
      <main id="main" tabIndex={-1} class={status.error ? "old" : ""}>
        {!status.value && !status.error && <p class="empty">Asking derated…</p>}
        {status.value && view === "" && <Fleet status={status.value} savings={savings.value} />}
        {status.value && view === "gpu" &&
          (gpu ? <OneGpu key={gpu.uuid} gpu={gpu} events={events} role={status.value.role} />
               : <p class="empty">GPU {route[1]} is not here. <a href="#/">All GPUs</a></p>)}
        {view === "savings" && <SavingsView />}
        {view === "jobs" && (route[1] ? <OneJob key={route[1]} name={decodeURIComponent(route[1])} /> : <JobsView />)}
        {view === "compare" && <CompareView />}
        {view === "events" && (
          <>
            <h1>What happened in the last day</h1>
            {events.length === 0 ? <p class="empty">Nothing.</p> : <EventList events={[...events].reverse()} />}
          </>
        )}
      </main>
    </>
  );
}

const place = document.getElementById("app")!;
beginSession().then(
  (known) => render(known ? <App /> : <NoSession />, place),
  () => render(<NoSession />, place),
);
