// What the page asks of derate-agent, which asks derated as the user who started it.

/** Nobody answers: the daemon or the agent is gone. */
export class Gone extends Error {}
/** It answers, and refuses: a sentence for people. */
export class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

const kPatience = 10_000; // ms
let token = sessionStorage.getItem("derate-token") ?? "";

/** Whether there is a token; the address has a code for one, once. */
export async function beginSession(): Promise<boolean> {
  const code = /^#([A-Za-z0-9_-]{43})$/.exec(location.hash)?.[1];
  if (code === undefined) return token !== "";
  history.replaceState(null, "", location.pathname + "#/");
  const answer = await fetch("/ui/session", { method: "POST", body: code });
  const told = await answer.json();
  if (!answer.ok) return token !== "";
  token = told.token;
  sessionStorage.setItem("derate-token", token);
  return true;
}

const head = () => ({ Authorization: `Bearer ${token}` });

async function asked(path: string, how: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch("/v1/" + path, { ...how, cache: "no-store" });
  } catch {
    throw new Gone("derate-agent does not answer");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  const sentence = typeof told.error === "string" ? told.error : `status ${answer.status}`;
  if (answer.status === 502 || answer.status === 503) throw new Gone(sentence);
  throw new Refused(answer.status, sentence);
}

export async function get<T>(path: string): Promise<T> {
  const signal = AbortSignal.timeout(kPatience);
  return (await (await asked(path, { headers: head(), signal })).json()) as T;
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
