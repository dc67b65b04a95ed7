// The fleet at a glance: one tile a GPU.
import type { Gpu, Savings, Status } from "./types";
import {
  chip, energy, gpuName, judge, megahertz, needsAttention, percent, promises, unknown, watts, why,
} from "./words";

function Bar({ share, label }: { share?: number; label: string }) {
  const width = 100 * Math.min(1, Math.max(0, share ?? 0));
  return (
    <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={label}>
      <rect class="bar-all" width="100" height="4" />
      <rect class="bar-part" width={width} height="4" />
    </svg>
  );
}

function Tile({ gpu, savings }: { gpu: Gpu; savings?: Savings }) {
  const judgement = judge(gpu);
  const share = savings?.lines.find((line) => line.key === gpu.uuid)?.sum.energy_saving_ratio;
  const limit = gpu.factory_power_limit_watts;
  return (
    <li>
      <a class={`tile ${judgement.level} ${gpu.power_watts == null ? "silent" : ""}`} href={`#/gpu/${gpu.index}`}>
        <span class="tile-head">
          <b>{gpuName(gpu)}</b> <span class="dim">{chip(gpu.name)}</span>
          <span aria-hidden="true" class="corner">{judgement.mark}</span>
        </span>
        <span class="verdict">
          <span aria-hidden="true" class="mark">{judgement.mark}</span> {judgement.words}
        </span>
        <span class="figures">
          <span class="big">{watts(gpu.power_watts)}</span>
          <span class="dim">{limit ? `of ${watts(limit)}` : ""}</span>
        </span>
        <Bar share={limit && gpu.power_watts ? gpu.power_watts / limit : 0}
             label={`power ${watts(gpu.power_watts)} of ${watts(limit)}`} />
        <span class="line">
          {megahertz(gpu.sm_clock_mhz)}{" "}
          <span class="dim">of {megahertz(gpu.highest_sm_clock_mhz)}</span>
        </span>
        <span class="line saved">
          saved today <b>{share == null ? unknown : percent(share, 1)}</b>
        </span>
        <span class="why dim">{why(gpu)}</span>
      </a>
    </li>
  );
}

function Headline({ status, savings }: { status: Status; savings?: Savings }) {
  const { gpus } = status;
  const power = gpus.reduce((sum, gpu) => sum + (gpu.power_watts ?? 0), 0);
  const attention = gpus.filter(needsAttention);
  const broken = gpus.some((gpu) => gpu.promise === "broken");
  const kept = gpus.some((gpu) => gpu.promise) && gpus.every((gpu) => !gpu.promise || gpu.promise === "kept");
  const today = savings?.total;
  return (
    <dl class="headline">
      <div class={attention.length > 0 ? "bad" : "good"}>
        <dt>Needs attention</dt>
        <dd>
          {attention.length === 0 ? "no GPU"
            : attention.length === 1 ? `${gpuName(attention[0]!)}: ${judge(attention[0]!).words}`
              : attention.slice(0, 4).map((gpu) => gpuName(gpu)).join(", ") +
                (attention.length > 4 ? ` and ${attention.length - 4} more` : "")}
        </dd>
      </div>
      <div class={broken ? "bad" : kept ? "good" : ""}>
        <dt>Promises of performance</dt>
        <dd>{promises(gpus)}</dd>
      </div>
      <div>
        <dt>Saved today (estimated)</dt>
        <dd>
          {!today ? unknown : today.saved_joules != null ? energy(today.saved_joules) : "nothing yet"}
          {today?.energy_saving_ratio != null && (
            <span class="dim"> ({percent(today.energy_saving_ratio, 1)})</span>
          )}
        </dd>
      </div>
      <div>
        <dt>Power now</dt>
        <dd>{watts(power)}</dd>
      </div>
    </dl>
  );
}

export function Fleet({ status, savings }: { status: Status; savings?: Savings }) {
  if (status.paused)
    return (
      <p class="empty">
        derated is paused: all GPUs are given back and closed until <code>derate resume</code>.
      </p>
    );
  if (status.asleep)
    return (
      <p class="empty">
        Nobody uses a GPU: derated has closed them so that they power down, and keeps no history of this time. It opens
        them when a program uses one.
      </p>
    );
  if (status.gpus.length === 0)
    return <p class="empty">derated is opening the GPUs, or there are none: <code>derate doctor</code></p>;
  // Who needs attention comes first; else by number.
  const order = [...status.gpus].sort(
    (a, b) => Number(needsAttention(b)) - Number(needsAttention(a)) || a.index - b.index,
  );
  const governed = status.gpus.some((gpu) => gpu.policy);
  return (
    <>
      <h1 class="sr">Fleet</h1>
      <Headline status={status} savings={savings} />
      {!governed && (
        <p class="empty">
          No GPU is governed: nothing is saved. <code>sudo derate policy set assure</code> governs all
          of them and keeps 90 % of their performance.
        </p>
      )}
      <ul class={`tiles ${status.gpus.length > 32 ? "dense" : status.gpus.length > 16 ? "many" : ""}`}>
        {order.map((gpu) => <Tile key={gpu.uuid} gpu={gpu} savings={savings} />)}
      </ul>
    </>
  );
}
