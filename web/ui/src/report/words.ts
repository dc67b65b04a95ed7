// Figures as words.
export { percent, unknown, watts } from "../words";
import { percent } from "../words";

/** With its sign: -3.0 %, +35.1 %. */
export const signed = (ratio: number, digits: 0 | 1 | 2 = 1) => `${ratio < 0 ? "" : "+"}${percent(ratio, digits)}`;

export const counted = (count: number, one: string, several = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : several}`;
