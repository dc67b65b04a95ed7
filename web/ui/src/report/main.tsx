// The page of `derate report`: one file or two side by side, from figures that lie in it, packed.
import { render } from "preact";
import { Report } from "./report";
import type { Results } from "./types";

/** JSON that was packed by gzip, as base64. */
async function unpacked(text: string): Promise<Results[]> {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

async function draw(place: HTMLElement) {
  const all = await unpacked(document.getElementById("data")!.textContent!);
  render(<div class={all.length > 1 ? "side-by-side" : undefined}>{all.map((each, i) => <Report key={i} results={each} name={all.length > 1 ? `${i + 1}. ${each.experiment}` : each.experiment} />)}</div>, place);
}

const place = document.getElementById("page")!;
draw(place).catch((error) =>
  render(<p role="alert">The figures in this page cannot be unpacked: {String(error)}. It wants Chromium 80, Firefox 113, Safari 16.4 or a later one.</p>, place));
