// A figure with its name, in a list of facts.
import type { Level } from "./words";

export function Fact({ name, wide, level, children }: {
  name: string; wide?: boolean; level?: Level; children: preact.ComponentChildren;
}) {
  return (
    <div class={[wide ? "wide" : "", level ?? ""].filter(Boolean).join(" ") || undefined}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
