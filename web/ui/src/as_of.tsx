// The line above a view whose figures nobody has renewed.
import { notKnown } from "./known";
import type { Live } from "./live";
import { Name } from "./name";

export function AsOf({ live }: { live: Live<unknown> }) {
  if (!live.error || !live.heard) return null;
  const words = notKnown(live.heard.unix, live.heard.unix);
  return <p class="stale" role="status"><Name of={`Changes are ${words}: ${live.error.message}.`} /></p>;
}
