// Names that others have chosen: of processes, users, jobs, GPUs, and what holds them. They change
// neither the direction of the text around them nor the width of the page.
const kLong = 40;

/** Without controls and marks of direction, which would show one name as another; of marks above
 *  each other four at most, which no script exceeds. */
export const plainText = (text: string) =>
  text.replace(/[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu, "\ufffd").replace(/(\p{M}{4})\p{M}+/gu, "$1");

export function Name({ of, dim }: { of: string; dim?: boolean }) {
  const text = plainText(of);
  return <bdi class={dim ? "name dim" : "name"} title={text.length > kLong ? text : undefined}>{text}</bdi>;
}
