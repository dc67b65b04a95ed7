// Scales, and how a series is told from another: by colour and by shape.

/** Round numbers in [low, high], about so many. */
export function ticks(low: number, high: number, about = 5): number[] {
  const raw = (high - low || 1) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw)!;
  const out = [];
  // By whole numbers: sums of steps would pass beside 0.
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-6; ++i) out.push(i * step || 0);
  return out;
}

export type Scale = (value: number) => number;

export const linear = (from: [number, number], to: [number, number]): Scale =>
  (value) => to[0] + ((value - from[0]) / (from[1] - from[0] || 1)) * (to[1] - to[0]);

// M. Okabe, K. Ito: Color Universal Design (2008), all but black, in an order whose neighbours differ most.
const kColours = 7;
// Of about the same area around the origin.
const kShapes = [
  "M5 0A5 5 0 1 1 -5 0A5 5 0 1 1 5 0Z",
  "M-4.4 -4.4H4.4V4.4H-4.4Z",
  "M0 -6L5.6 4.2H-5.6Z",
  "M0 -6L6 0L0 6L-6 0Z",
  "M0 6L5.6 -4.2H-5.6Z",
  "M-2 -5.6H2V-2H5.6V2H2V5.6H-2V2H-5.6V-2H-2Z",
  "M-5.6 -4.2L-4.2 -5.6L0 -1.4L4.2 -5.6L5.6 -4.2L1.4 0L5.6 4.2L4.2 5.6L0 1.4L-4.2 5.6L-5.6 4.2L-1.4 0Z",
  "M0 -6.4L1.7 -2.1L6.1 -2L2.7 0.9L3.8 5.2L0 2.7L-3.8 5.2L-2.7 0.9L-6.1 -2L-1.7 -2.1Z",
];

export interface Look {
  colour: string; // a class of the style
  shape: string; // a path around the origin
}

/** The looks of a list's members, all different for the first 56. */
export const lookOf = (index: number): Look => ({
  colour: `c${index % kColours}`,
  shape: kShapes[index % kShapes.length]!,
});
