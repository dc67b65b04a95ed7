// What is asked again and again while the page is seen.
import { useEffect, useRef, useState } from "preact/hooks";
import { follow, get } from "./api";
import type { DerateEvent } from "./types";

export interface Live<T> {
  value?: T;
  error?: Error;
  since?: number; // ms; the error's
  at?: number; // ms; the value's
}

/** Asks at once, then that often; a page that nobody sees asks nothing. Another `again`: at once again. */
export function useAsked<T>(path: string | undefined, everyMs: number, again = 0): Live<T> {
  const [live, setLive] = useState<Live<T>>({});
  useEffect(() => {
    if (path === undefined) return;
    let ended = false;
    let running = false; // one question at a time, so that no late answer replaces a newer one
    let timer: ReturnType<typeof setTimeout>;
    const round = async () => {
      if (running) return;
      running = true;
      const begun = performance.now();
      if (!document.hidden) {
        try {
          const value = await get<T>(path);
          if (!ended) setLive({ value, at: Date.now() });
        } catch (error) {
          if (!ended)
            setLive((before) => ({
              value: before.value, at: before.at, error: error as Error, since: before.since ?? Date.now(),
            }));
        }
      }
      running = false;
      if (!ended) timer = setTimeout(round, Math.max(200, everyMs - (performance.now() - begun)));
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

const kMostEvents = 200;

/** The last day's, and those that come. */
export function useEvents(): DerateEvent[] {
  const [events, setEvents] = useState<DerateEvent[]>([]);
  const last = useRef(0);
  useEffect(() => {
    const ending = new AbortController();
    const take = (more: DerateEvent[]) => {
      last.current = Math.max(last.current, ...more.map((event) => event.id));
      setEvents((before) => [...before, ...more].slice(-kMostEvents));
    };
    const run = async () => {
      while (!ending.signal.aborted) {
        try {
          if (last.current === 0) {
            const told = await get<{ events: DerateEvent[] }>(`events?from=now-1d&most=${kMostEvents}`);
            if (told.events.length > 0) take(told.events);
          }
          await follow(last.current, ending.signal, (event) => take([event as DerateEvent]));
        } catch {
          // The page says by its status that nobody answers.
        }
        await new Promise((done) => setTimeout(done, 2000));
      }
    };
    void run();
    return () => ending.abort();
  }, []);
  return events;
}

/** The part of the address behind '#'. */
export function useRoute(): string[] {
  const read = () => location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const changed = () => setRoute(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
