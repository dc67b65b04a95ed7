// Engines that serve language models: their latencies against what they promise.
import { Name } from "./name";
import type { Service } from "./types";
import { percent, unknown } from "./words";

const kFreshSeconds = 3; // after that its requests are not those of now

/** "50 ms", "2.5 s". */
const latency = (seconds?: number) =>
  seconds == null ? unknown
    : seconds < 1 ? `${Number((1000 * seconds).toPrecision(4))}\u00a0ms` : `${Number(seconds.toPrecision(4))}\u00a0s`;

export function promiseOf(service: Service): { words: string; level: "" | "good" | "bad" } {
  const { promise_state: state = "none", figures } = service;
  if (state === "kept") return { words: state, level: "good" };
  if (state === "broken") return { words: `broken: ${percent(figures?.late_ratio, 1)} late`, level: "bad" };
  return { words: state, level: "" };
}

function Row({ service, quiet }: { service: Service; quiet: boolean }) {
  const fresh = !quiet && service.age_seconds != null && service.age_seconds < kFreshSeconds;
  const { words, level } = promiseOf(service);
  const figures = service.figures ?? {};
  return (
    <>
      <tr>
        <th scope="row"><Name of={service.name} /></th>
        <td class="text">{service.engine ? <Name of={service.engine} /> : unknown}</td>
        <td class="text">
          {service.gpus.length === 0 ? unknown
            : service.gpus.map((gpu, i) => <span key={gpu.uuid}>{i > 0 && ", "}<a href={`#/gpu/${gpu.index}`}>{gpu.index}</a></span>)}
        </td>
        <td>{fresh && service.running != null ? `${service.running}${service.waiting ? ` + ${service.waiting} wait` : ""}` : unknown}</td>
        <td>{latency(figures.itl_p50_at_most_seconds)}</td>
        <td>{latency(figures.itl_p99_at_most_seconds)}</td>
        <td>{latency(figures.ttft_p99_at_most_seconds)}</td>
        <td>{percent(figures.late_by_clock_ratio, 2)}</td>
        <td>{figures.joules_per_token == null ? unknown : `${Number(figures.joules_per_token.toPrecision(3))}\u00a0J`}</td>
        <td class={`text ${quiet ? "" : level}`}>
          {service.promise.join(", ")} {quiet ? "" : service.promise.length > 0 && <b>{words}</b>}
        </td>
      </tr>
      {service.trouble && !quiet && <tr><td class="text trouble" colSpan={10}><Name of={service.trouble} /></td></tr>}
    </>
  );
}

/** Of the last ten minutes at most; a quantile lies at an edge of the engine's histogram, or below. */
export function Services({ services, quiet }: { services: Service[]; quiet: boolean }) {
  if (services.length === 0) return null;
  return (
    <section aria-label="engines that serve language models">
      <h2 class="group">Services <span class="dim">{services.length}</span></h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="services">
        <table class="services">
          <caption class="dim">Of the last ten minutes at most; times are at most what is shown</caption>
          <thead>
            <tr>
              <th scope="col">service</th><th scope="col" class="text">engine</th><th scope="col" class="text">GPUs</th>
              <th scope="col">requests</th><th scope="col">token to token, median</th><th scope="col">p99</th>
              <th scope="col">first token, p99</th><th scope="col">late by the clock</th><th scope="col">a token</th>
              <th scope="col" class="text">promise</th>
            </tr>
          </thead>
          <tbody>
            {services.map((service) => <Row key={service.name} service={service} quiet={quiet} />)}
          </tbody>
        </table>
      </div>
    </section>
  );
}
