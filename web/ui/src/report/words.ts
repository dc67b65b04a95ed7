// Figures as words.
export { percent, unknown, watts } from "../words";
import { percent } from "../words";

/** With its sign: -3.0 %, +35.1 %. */
export const signed = (ratio: number, digits: 0 | 1 | 2 = 1) => `${ratio < 0 ? "" : "+"}${percent(ratio, digits)}`;

export const counted = (count: number, one: string, several = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : several}`;

interface Mean {
  mean?: number | null;
  low?: number | null;
  high?: number | null;
}

/** A difference of ratios in points: "1.2 points more (95 %: 0.4 to 2.0)", or that none is clear. */
export function points({ mean, low, high }: Mean, more: string, less: string): string {
  if (mean == null) return "an unknown amount";
  const of = (ratio: number) => Math.abs(100 * ratio).toFixed(1);
  const size = `${of(mean)} points ${mean >= 0 ? more : less}`;
  if (low == null || high == null) return size;
  if (low > 0) return `${size} (95 %: ${of(low)} to ${of(high)})`;
  if (high < 0) return `${size} (95 %: ${of(high)} to ${of(low)})`;
  return `not clearly ${more} or ${less} (95 %: ${(100 * low).toFixed(1)} to ${(100 * high).toFixed(1)} points)`;
}

/** Where applications are from, the most first: "22 by clock sweep, 10 by trace". */
export function sourcesOf(all: { source: string; apps: number }[]): string {
  const kinds = new Map<string, number>();
  for (const { source, apps } of all) {
    const kind = source.split(/[;:]| at | to /)[0]!;
    kinds.set(kind, (kinds.get(kind) ?? 0) + apps);
  }
  const list = [...kinds].sort((a, b) => b[1] - a[1]);
  return list.slice(0, 3).map(([kind, apps]) => `${apps} by ${kind}`).join(", ") + (list.length > 3 ? " and others" : "");
}

/** A policy's label in a sentence: in quotation marks if it is more than a word. */
export const named = (label: string) => (/\s/.test(label) ? `“${label}”` : label);

interface Rival {
  than: string;
  loss_ratio: Mean;
}

/** The rival that is most like the headline: of the same promise, not made with these applications, of the nearest loss. */
export function nearestRival<R extends Rival>(headline: string | undefined, overall: { policy: string; delta: number; known_apps: number }[], rivals: R[]): R | undefined {
  const of = (label: string | undefined) => overall.find((each) => each.policy === label);
  const far = (each: R) => Math.abs(each.loss_ratio.mean ?? 1);
  const like = rivals.filter((each) => of(each.than)?.delta === of(headline)?.delta && of(each.than)?.known_apps === 0);
  return [...like].sort((a, b) => far(a) - far(b))[0] ?? rivals[0];
}
