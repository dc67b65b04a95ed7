// What each policy gains for what it loses.
import { percent, signed } from "./words";
import { Figure, Shape, useWidth, type TableOf } from "./figure";
import { linear, lookOf, ticks } from "./scale";
import { compared, placeOf, type Policy, type Results, type Stage } from "./types";

interface Label {
  x: number;
  y: number;
  text: string;
  end: boolean; // its end is at x, not its beginning
  mark: { x: number; y: number }; // what it names
}

const kLetter = 6.6, kLine = 14; // pixels, of the style's font
const kFar = 12; // pixels that a label has moved, from where a line leads to its mark

/** Labels that would lie on one another are moved up, those of the lowest marks first; one that has no room there, down. */
function apart(labels: Label[], top: number): Label[] {
  const span = ({ x, text, end }: Label) => (end ? [x - text.length * kLetter, x] : [x, x + text.length * kLetter]) as [number, number];
  const placed: Label[] = [];
  for (const label of labels.sort((a, b) => b.y - a.y)) {
    const [from, to] = span(label);
    const beside = placed.filter((other) => { const [left, right] = span(other); return from < right && left < to; });
    const isFree = (y: number) => beside.every((other) => Math.abs(other.y - y) >= kLine);
    const choices = [label.y, ...beside.map((other) => other.y - kLine), ...beside.map((other) => other.y + kLine)].filter((y) => y >= top && isFree(y));
    // Near its mark, and rather above than below.
    label.y = choices.sort((a, b) => Math.abs(a - label.y) - Math.abs(b - label.y) || a - b)[0] ?? label.y;
    placed.push(label);
  }
  return placed;
}

function tableOf(stage: Stage, policies: Policy[]): TableOf {
  const bare = (name: string, each: { loss_ratio: number; efficiency_gain_ratio: number }) =>
    [name, 100 * each.loss_ratio, null, null, 100 * each.efficiency_gain_ratio, null, null];
  return {
    head: ["policy", "loss, %", "loss, low", "loss, high", "gain, %", "gain, low", "gain, high"],
    rows: [
      ...policies.map(({ policy, loss_ratio: loss, efficiency_gain_ratio: gain }) => [
        policy, 100 * loss.mean, hundred(loss.low), hundred(loss.high), 100 * gain.mean, hundred(gain.low), hundred(gain.high),
      ]),
      ...(stage.oracle ? [bare("oracle, in hindsight", stage.oracle)] : []),
      ...(stage.two_clocks ? [bare("two clocks, in hindsight", stage.two_clocks)] : []),
      ...stage.frontier.map((each) => bare(`fixed ${each.clock_mhz} MHz`, each)),
    ],
  };
}

const hundred = (value?: number) => (value === undefined ? null : 100 * value);

export function Scatter({ results, stage, file }: { results: Results; stage: Stage; file: string }) {
  const [place, wide] = useWidth(330, 1140);
  const high = 380;
  const policies = compared(results, stage);
  const box = { left: 64, right: wide - 16, top: 14, bottom: high - 52 };
  const most = 1.05 * Math.max(1.3 * results.delta, ...policies.map((each) => each.loss_ratio.high ?? each.loss_ratio.mean));
  const frontier = stage.frontier.filter((each) => each.loss_ratio <= most);
  const gains = [
    0.05, stage.two_clocks?.efficiency_gain_ratio ?? 0, ...frontier.map((each) => each.efficiency_gain_ratio),
    ...policies.map((each) => each.efficiency_gain_ratio.high ?? each.efficiency_gain_ratio.mean),
  ];
  const least = Math.min(0, ...policies.map((each) => each.efficiency_gain_ratio.low ?? each.efficiency_gain_ratio.mean));
  const top = 1.08 * Math.max(...gains);
  const x = linear([0, most], [box.left, box.right]), y = linear([least, top], [box.bottom, box.top]);
  const hindsight = ([["oracle", stage.oracle], ["two clocks", stage.two_clocks]] as const).filter(([, each]) => each);

  const labels: Label[] = [
    ...hindsight.map(([text, each]) => ({ x: x(each!.loss_ratio) - 10, y: y(each!.efficiency_gain_ratio) - 2, text, end: true, mark: { x: x(each!.loss_ratio), y: y(each!.efficiency_gain_ratio) } })),
    ...policies.map((each) => {
      const at = x(each.loss_ratio.mean), end = at > box.right - 110;
      return { x: at + (end ? -10 : 10), y: Math.min(y(each.efficiency_gain_ratio.mean) + 4, box.bottom - 7), text: each.policy, end, mark: { x: at, y: y(each.efficiency_gain_ratio.mean) } };
    }),
  ];
  return (
    <div ref={place}>
      <Figure title="Gain of efficiency against loss of performance" file={`${file}-gain-and-loss`} table={tableOf(stage, policies)} width={wide} height={high}
              note={<>Each policy with its 95 % intervals, by the mean of its jobs; the dashed line is the promise, which is judged job by job. {stage.frontier.length > 0 && "A grey dot is one constant clock, and the grey line what one constant clock for all work gives: a policy below it has done nothing that a fixed setting would not."}</>}>
        {ticks(0, most).map((v) => <g key={v}><line class="axis" x1={x(v)} x2={x(v)} y1={box.top} y2={box.bottom} /><text x={x(v)} y={box.bottom + 17} text-anchor="middle">{percent(v)}</text></g>)}
        {ticks(least, top).map((v) => <g key={v}><line class="axis" x1={box.left} x2={box.right} y1={y(v)} y2={y(v)} /><text x={box.left - 7} y={y(v) + 4} text-anchor="end">{signed(v, 0)}</text></g>)}
        <text class="title" x={(box.left + box.right) / 2} y={high - 12} text-anchor="middle">mean loss of performance</text>
        <text class="title" transform={`translate(14 ${(box.top + box.bottom) / 2}) rotate(-90)`} text-anchor="middle">gain of efficiency</text>
        <line class="promise" x1={x(results.delta)} x2={x(results.delta)} y1={box.top} y2={box.bottom} />
        <text x={x(results.delta) + 5} y={box.bottom - 6}>promise</text>
        <polyline class="frontier" points={frontier.map((each) => `${x(each.loss_ratio)},${y(each.efficiency_gain_ratio)}`).join(" ")} />
        {frontier.map((each) => <circle key={each.clock_mhz} class="frontier-dot" cx={x(each.loss_ratio)} cy={y(each.efficiency_gain_ratio)} r={2.5}
          data-said={`fixed ${each.clock_mhz} MHz: ${signed(each.efficiency_gain_ratio)}, loss ${percent(each.loss_ratio, 1)}`} />)}
        {hindsight.map(([name, each]) => <path key={name} class="best" d="M0 -6L6 0L0 6L-6 0Z" transform={`translate(${x(each!.loss_ratio)} ${y(each!.efficiency_gain_ratio)})`}
          data-said={`${name}, in hindsight: ${signed(each!.efficiency_gain_ratio)}, loss ${percent(each!.loss_ratio, 1)}`} />)}
        {policies.map((each) => {
          const look = lookOf(placeOf(results, stage, each)), loss = each.loss_ratio, gain = each.efficiency_gain_ratio;
          return (
            <g key={each.policy}>
              {loss.low !== undefined && <line class={`whisker ${look.colour}`} x1={x(loss.low)} x2={x(loss.high!)} y1={y(gain.mean)} y2={y(gain.mean)} />}
              {gain.low !== undefined && <line class={`whisker ${look.colour}`} x1={x(loss.mean)} x2={x(loss.mean)} y1={y(gain.low)} y2={y(gain.high!)} />}
              <Shape look={look} x={x(loss.mean)} y={y(gain.mean)} said={`${each.policy}: ${signed(gain.mean)}, loss ${percent(loss.mean, 1)}`} />
            </g>
          );
        })}
        {apart(labels, box.top + 4).map((each) => {
          const middle = each.y - 4, isFar = Math.abs(middle - each.mark.y) > kFar;
          return (
            <g key={each.text}>
              {isFar && <line class="leader" x1={each.mark.x} y1={each.mark.y} x2={each.x + (each.end ? 2 : -2)} y2={middle} />}
              <text class="strong" x={each.x} y={each.y} text-anchor={each.end ? "end" : "start"}>{each.text}</text>
            </g>
          );
        })}
      </Figure>
    </div>
  );
}
