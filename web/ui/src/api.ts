// What the page asks of derate-agent, which asks derated as the user who started it.

/** Nobody answers: the daemon is gone, or the agent. */
export class Gone extends Error {
  constructor(message: string, readonly agent = false) {
    super(message);
  }
}
/** It answers, and refuses: a sentence for people. */
export class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

const kPatience = 10_000; // ms
const kHandover = 300; // ms: so long another tab may take to answer
const kKey = "derate-token";
let token = sessionStorage.getItem(kKey) ?? "";
let refused = false; // that token, by an agent that was begun after it

// Tabs of one origin, which is one port, share the session: the code of the address is good once.
// One whose token works hands it to one that has none, or an old one.
const tabs = new BroadcastChannel("derate-session");
let arrived: () => void = () => {};

function take(told: string): void {
  token = told;
  refused = false;
  sessionStorage.setItem(kKey, told);
}

tabs.onmessage = ({ data }: MessageEvent<{ wanted?: boolean; token?: unknown }>) => {
  if (data.wanted && token !== "" && !refused) tabs.postMessage({ token });
  if (typeof data.token !== "string" || (token !== "" && !refused)) return;
  take(data.token);
  arrived();
};

/** Calls when another tab has handed over a session. */
export function onSession(call: () => void): void {
  arrived = call;
}

/** Whether there is a token: of this tab, for the code in the address, or of another tab. */
export async function beginSession(): Promise<boolean> {
  const code = /^#([A-Za-z0-9_-]{43})$/.exec(location.hash)?.[1];
  if (code !== undefined) {
    history.replaceState(null, "", location.pathname + "#/");
    const answer = await fetch("/ui/session", { method: "POST", body: code });
    const told = await answer.json();
    if (answer.ok) {
      take(told.token);
      tabs.postMessage({ token });
      return true;
    }
  }
  if (token !== "") return true;
  tabs.postMessage({ wanted: true });
  await new Promise((done) => setTimeout(done, kHandover));
  return token !== "";
}

const head = () => ({ Authorization: `Bearer ${token}` });

async function asked(path: string, how: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch("/v1/" + path, { ...how, cache: "no-store" });
  } catch (error) {
    if ((error as Error).name === "TimeoutError") throw new Gone("no answer for 10 s");
    throw new Gone("`derate ui` has ended, or cannot be reached", true);
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  const sentence = typeof told?.error === "string" ? told.error : `status ${answer.status}`;
  if (answer.status === 502 || answer.status === 503) throw new Gone(sentence);
  if (answer.status === 401) {
    refused = true;
    tabs.postMessage({ wanted: true });
  }
  throw new Refused(answer.status, sentence);
}

// The list that each answer has: the page would show an empty answer as nothing.
const kLists: Record<string, string> = {
  status: "gpus", history: "series", savings: "lines", events: "events", forecast: "forecasts", advice: "advice",
  why: "changes", "config-show": "settings", "tune-job-list": "jobs",
};

export async function get<T>(path: string): Promise<T> {
  const signal = AbortSignal.timeout(kPatience);
  const answer = await asked(path, { headers: head(), signal });
  const told = await answer.json().catch(() => undefined);
  const list = kLists[path.split("?")[0]!];
  if (typeof told !== "object" || told === null || (list !== undefined && !Array.isArray(told[list])))
    throw new Refused(answer.status, `the answer to ${path.split("?")[0]} was not understood: this page and derated may be of two versions`);
  return told as T;
}

/** What changes something, as JSON. A part may have gone well: `Refused` then names what did not. */
export async function post<T>(path: string, body: object): Promise<T> {
  const headers = { ...head(), "Content-Type": "application/json" };
  const signal = AbortSignal.timeout(kPatience);
  const answer = await asked(path, { method: "POST", headers, signal, body: JSON.stringify(body) });
  return (await answer.json()) as T;
}

/** Events as they happen, after that one; ends with an error. */
export async function follow(
  after: number, signal: AbortSignal, take: (event: unknown) => void,
): Promise<void> {
  const headers: Record<string, string> = { ...head(), Accept: "text/event-stream" };
  if (after > 0) headers["Last-Event-ID"] = String(after);
  const answer = await asked("events", { headers, signal });
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read().catch(() => ({ value: "", done: true }));
    if (done) throw new Gone("the stream of events ended");
    const parts = (text + value).split("\n\n");
    text = parts.pop()!;
    for (const part of parts) {
      const data = /^data: (.*)$/m.exec(part)?.[1];
      if (data !== undefined && /^id: /m.test(part)) take(JSON.parse(data));
    }
  }
}
