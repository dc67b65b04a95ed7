// The card at a glance: its memory and who holds it, its link, its fan, and its errors.
import { Fact } from "./fact";
import { timeSeen, type ShownGpu } from "./known";
import { Name } from "./name";
import { holdersOf, tenantName } from "./tenants";
import type { Card } from "./types";
import { byteRate, memory, memoryOf, percent } from "./words";

/** How much of the memory is used, as a bar; nothing where that is not known. */
export function MemoryBar({ card, thin }: { card?: Card; thin?: boolean }) {
  const { memory_used_bytes: used, memory_total_bytes: total } = card ?? {};
  if (used == null || !total) return null;
  return (
    <svg class={thin ? "bar memory thin" : "bar memory"} viewBox="0 0 100 4" preserveAspectRatio="none" role="img"
         aria-label={`memory ${memoryOf(used, total)}`}>
      <rect class="bar-all" width="100" height="4" />
      <rect class="bar-part" width={100 * Math.min(1, used / total)} height="4" />
    </svg>
  );
}

const kHolders = 4;

/** Who holds the memory, the most first; the rest as their number. */
function Holders({ gpu }: { gpu: ShownGpu }) {
  const all = holdersOf(gpu);
  if (all.length === 0) return null;
  const rest = all.slice(kHolders);
  return (
    <ul class="holders">
      {all.slice(0, kHolders).map((tenant) => (
        <li key={tenant.key}>
          <span><Name of={tenantName(tenant)} />{tenant.user && <span class="dim"> of <Name of={tenant.user} /></span>}</span>
          <b>{memory(tenant.memory_bytes)}</b>
        </li>
      ))}
      {rest.length > 0 && (
        <li>
          <a href={`#/processes?gpu=${gpu.index}&sort=memory`}>{rest.length} more</a>
          <b>{memory(rest.reduce((sum, tenant) => sum + (tenant.memory_bytes ?? 0), 0))}</b>
        </li>
      )}
    </ul>
  );
}

/** "gen 4 x16"; empty: neither is known. */
export const linkOf = (generation?: number, lanes?: number) =>
  [generation == null ? "" : `gen\u00a0${generation}`, lanes == null ? "" : `x${lanes}`].filter(Boolean).join("\u00a0");

function Link({ card }: { card: Card }) {
  const now = linkOf(card.pcie_generation, card.pcie_lanes);
  const most = linkOf(card.pcie_most_generation, card.pcie_most_lanes);
  if (!now) return null;
  return (
    <Fact name="PCIe link">
      {now} {most && most !== now && <span class="dim" title="an idle link is slower by itself">of {most}</span>}
    </Fact>
  );
}

function Traffic({ card }: { card: Card }) {
  const { pcie_tx_bytes_per_second: sent, pcie_rx_bytes_per_second: received } = card;
  if (sent == null && received == null) return null;
  return (
    <Fact name="PCIe traffic">
      {sent != null && <>{byteRate(sent)} <span class="dim">sent</span></>}{sent != null && received != null && <br />}
      {received != null && <>{byteRate(received)} <span class="dim">received</span></>}
    </Fact>
  );
}

function Ratio({ name, of }: { name: string; of?: number }) {
  return of == null ? null : <Fact name={name}>{percent(of)}</Fact>;
}

const count = (value: number) => value.toLocaleString("en");

function Ecc({ card }: { card: Card }) {
  const { ecc_corrected_errors: corrected, ecc_uncorrected_errors: uncorrected } = card;
  if (corrected == null && uncorrected == null) return null;
  return (
    <Fact name="ECC errors" wide level={uncorrected ? "bad" : undefined}>
      {uncorrected != null && <>{count(uncorrected)} <span class="dim">uncorrected</span></>}{corrected != null && uncorrected != null && <span class="dim">, </span>}
      {corrected != null && <>{count(corrected)} <span class="dim">corrected</span></>}
      <span class="dim"> since the driver was loaded</span>
    </Fact>
  );
}

function Xid({ card, gpu }: { card: Card; gpu: ShownGpu }) {
  if (card.xid == null) return null;
  const when = card.xid_unix_seconds == null ? undefined : timeSeen(card.xid_unix_seconds, gpu);
  return (
    <Fact name="Xid" wide>
      {card.xid} {card.xid_text && <>(<Name of={card.xid_text} />)</>}{" "}
      <span class="dim">{[when, (card.xids ?? 0) > 1 ? `${count(card.xids!)} since derated opened the GPU` : ""].filter(Boolean).join(", ")}</span>
    </Fact>
  );
}

// What says nothing without another field.
const kNoFact = new Set(["age_seconds", "pcie_most_generation", "pcie_most_lanes", "xids", "xid_text", "xid_unix_seconds"]);

export function CardView({ gpu }: { gpu: ShownGpu }) {
  const card = gpu.card;
  if (!card || !Object.keys(card).some((key) => !kNoFact.has(key))) return null;
  const { memory_used_bytes: used, memory_total_bytes: total } = card;
  const knowsMemory = used != null || total != null;
  return (
    <section aria-labelledby="card">
      <h2 id="card">The card</h2>
      <dl class="facts card">
        {knowsMemory && (
          <Fact name="Memory" wide>
            {memoryOf(used, total)} {used != null && total ? <span class="dim">{percent(used / total)}</span> : null}
            <MemoryBar card={card} />
            <Holders gpu={gpu} />
          </Fact>
        )}
        <Link card={card} />
        <Traffic card={card} />
        <Ratio name="Fan" of={card.fan_ratio} />
        <Ratio name="Encoder" of={card.encoder_ratio} />
        <Ratio name="Decoder" of={card.decoder_ratio} />
        <Ecc card={card} />
        <Xid card={card} gpu={gpu} />
      </dl>
    </section>
  );
}
