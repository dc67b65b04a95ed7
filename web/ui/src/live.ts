// Questions that are repeated while the page is seen.
import { useEffect, useRef, useState } from "preact/hooks";
import { follow, get } from "./api";
import { kQuietSeconds, type Heard } from "./known";
import type { DerateEvent, EventsAnswer } from "./types";

export interface Live<T> {
  value?: T;
  heard?: Heard; // the value
  error?: Error; // of the last question; absent: it was answered
}

const kPatientTries = 30; // after so many failures it queries less often
const kSeldom = 5;

const heardNow = (value: unknown): Heard => {
  const unix = (value as { time_unix_seconds?: unknown }).time_unix_seconds;
  return { unix: typeof unix === "number" ? unix : Date.now() / 1000, ms: performance.now() };
};

/** Asks at once, then that often; a page that nobody sees asks nothing. Another `again`: at once again. */
export function useAsked<T>(path: string | undefined, everyMs: number, again = 0): Live<T> {
  const [live, setLive] = useState<Live<T>>({});
  useEffect(() => {
    if (path === undefined) return;
    let ended = false;
    let running = false; // one question at a time, so that no late answer replaces a newer one
    let failed = 0;
    let timer: ReturnType<typeof setTimeout>;
    const round = async () => {
      if (running) return;
      running = true;
      const begun = performance.now();
      if (!document.hidden) {
        try {
          const value = await get<T>(path);
          failed = 0;
          if (!ended) setLive({ value, heard: heardNow(value) });
        } catch (error) {
          ++failed;
          if (!ended) setLive((before) => ({ value: before.value, heard: before.heard, error: error as Error }));
        }
      }
      running = false;
      const every = failed > kPatientTries ? kSeldom * everyMs : everyMs;
      if (!ended) timer = setTimeout(round, Math.max(200, every - (performance.now() - begun)));
    };
    const seen = () => {
      if (document.hidden) return;
      clearTimeout(timer);
      void round();
    };
    document.addEventListener("visibilitychange", seen);
    void round();
    return () => {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [path, everyMs, again]);
  return live;
}

const kReturn = 1500; // ms: the page queries again before it raises an alarm

/** Whether the value does not hold any more: an error, or nothing since although it was requested that often. */
export function useQuiet(live: Live<unknown>, everyMs: number): boolean {
  const [late, setLate] = useState(false);
  const ms = live.heard?.ms;
  const quietAfter = Math.max(1000 * kQuietSeconds, everyMs + kReturn);
  useEffect(() => {
    setLate(false);
    if (ms === undefined) return;
    let timer: ReturnType<typeof setTimeout>;
    const wait = (least: number) => {
      clearTimeout(timer);
      timer = setTimeout(() => setLate(!document.hidden), Math.max(least, ms + quietAfter - performance.now()));
    };
    const seen = () => wait(kReturn);
    wait(0);
    document.addEventListener("visibilitychange", seen);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [ms, quietAfter]);
  return live.error !== undefined || late;
}

/** The browser's count, renewed each second. */
export function useSeconds(runs: boolean): number {
  const [now, setNow] = useState(performance.now());
  useEffect(() => {
    setNow(performance.now());
    if (!runs) return;
    const timer = setInterval(() => setNow(performance.now()), 1000);
    return () => clearInterval(timer);
  }, [runs]);
  return now;
}

/** The last day's, folded; of a GPU (its number), or after an event. */
export const eventsPath = (most: number, { gpu, after }: Query = {}) =>
  `events?from=now-1d&fold=true&most=${most}${gpu && gpu !== "none" ? `&gpu=${encodeURIComponent(gpu)}` : ""}` +
  (after ? `&after=${encodeURIComponent(after)}` : "");
/** So many lines at most. */
export const kMostLines = 500;
const kKeptAfter = 1500; // ms: events are in the history a moment after they happen
const kKeptTries = 4;

/** The last day's events, asked anew when another happens. `newest`: the id of the newest that is known. */
export function useEvents(): { lines: DerateEvent[]; newest: number } {
  const [lines, setLines] = useState<DerateEvent[]>([]);
  const happened = useRef(0); // the newest of the stream
  const kept = useRef(0); // the newest of an answer
  useEffect(() => {
    const ending = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async () => {
      const { events } = await get<EventsAnswer>(eventsPath(kMostLines));
      if (ending.signal.aborted) return;
      kept.current = events[events.length - 1]?.id ?? 0;
      setLines(events);
    };
    const soon = (tries: number) => {
      if (timer !== undefined) return;
      timer = setTimeout(async () => {
        await ask().catch(() => {});
        timer = undefined;
        if (kept.current < happened.current && tries > 1 && !ending.signal.aborted) soon(tries - 1);
      }, kKeptAfter);
    };
    const take = (event: DerateEvent) => {
      happened.current = event.id;
      soon(kKeptTries);
    };
    const run = async () => {
      while (!ending.signal.aborted) {
        try {
          await ask();
          await follow(kept.current, ending.signal, (event) => take(event as DerateEvent));
        } catch {
          // The page says by its status that nobody answers.
        }
        await new Promise((done) => setTimeout(done, 2000));
      }
    };
    void run();
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  }, []);
  return { lines, newest: lines[lines.length - 1]?.id ?? 0 };
}

export type Query = Record<string, string | undefined>;
export interface Route {
  parts: string[];
  query: Query;
  set: (query: Query) => void; // merged; another picture of the same view, so that "back" leaves the view
}

const decoded = (text: string) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

function readRoute(): Omit<Route, "set"> {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return {
    parts: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

/** The address of a view: "#/gpu/2?span=6h". */
export function addressOf(parts: string[], query: Query): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value) words.set(key, value);
  return `#/${parts.map(encodeURIComponent).join("/")}${words.size > 0 ? `?${words}` : ""}`;
}

/** The part of the address behind '#': what somebody else sees who opens it. */
export function useRoute(): Route {
  const [route, setRoute] = useState(readRoute);
  useEffect(() => {
    const changed = () => setRoute(readRoute());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const set = (query: Query) => {
    const now = readRoute();
    history.replaceState(null, "", addressOf(now.parts, { ...now.query, ...query }));
    setRoute(readRoute());
  };
  return { ...route, set };
}
