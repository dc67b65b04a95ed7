// What was used and saved: today, this week, this month.
import { useState } from "preact/hooks";
import { useAsked } from "./live";
import type { Savings, Setting } from "./types";
import { dayTime, energy, percent, savedShare, savedSince, unknown } from "./words";

const kDays = [
  { name: "today", days: 1 },
  { name: "7 days", days: 7 },
  { name: "30 days", days: 30 },
] as const;

const midnight = (daysAgo: number) => {
  const day = new Date();
  day.setHours(0, 0, 0, 0);
  day.setDate(day.getDate() - daysAgo);
  return day.getTime() / 1000;
};

/** What derated's configuration says, until somebody types something else. */
function useSetting(settings: Setting[] | undefined, key: string): [string, (value: string) => void] {
  const [typed, setTyped] = useState<string>();
  const said = settings?.find((each) => each.key === `attribute.${key}`)?.value ?? "";
  return [typed ?? said.replace(/^"|"$/g, ""), setTyped];
}

function times(joules: number, per: string, unit: string, scale = 1): string {
  const each = Number(per);
  if (per === "" || !Number.isFinite(each)) return unknown;
  return `${((joules / 3.6e6) * each / scale).toLocaleString("en", { maximumFractionDigits: 2 })} ${unit}`;
}

export function SavingsView() {
  const settings = useAsked<{ settings: Setting[] }>("config-show", 60_000).value?.settings;
  const [price, setPrice] = useSetting(settings, "price_per_kwh");
  const [currency, setCurrency] = useSetting(settings, "currency");
  const [co2, setCo2] = useSetting(settings, "co2_g_per_kwh");
  const asked = useAsked<Savings>(`savings?by=gpu&from=${encodeURIComponent("@" + midnight(29))}`, 60_000);
  if (asked.error && !asked.value) return <p class="empty">{asked.error.message}</p>;
  if (!asked.value) return <p class="empty">Reading the history…</p>;
  const savings = asked.value;
  return (
    <>
      <h1>Savings</h1>
      <p class="dim">
        Estimated by each policy's own curves, against the highest clock; 90 % sure between the two
        ends. {savings.first_unix_seconds ? `Kept since ${dayTime(savings.first_unix_seconds)}.` : ""}
      </p>
      <form class="prices" onSubmit={(event) => event.preventDefault()}>
        <label>Price of a kWh <input inputMode="decimal" size={6} value={price} onInput={(e) => setPrice(e.currentTarget.value)} /></label>
        <label>Currency <input size={5} value={currency} onInput={(e) => setCurrency(e.currentTarget.value)} /></label>
        <label>g of CO₂ a kWh <input inputMode="decimal" size={6} value={co2} onInput={(e) => setCo2(e.currentTarget.value)} /></label>
      </form>
      <div class="scroll" tabIndex={0} role="region" aria-label="savings">
        <table class="savings">
          <thead>
            <tr>
              <th scope="col">time</th><th scope="col">used</th><th scope="col">saved</th><th scope="col">of</th>
              <th scope="col">90 % sure between</th><th scope="col">money saved</th><th scope="col">CO₂ saved</th>
            </tr>
          </thead>
          <tbody>
            {kDays.map((each) => {
              const sum = savedSince(savings, midnight(each.days - 1));
              const known = sum.of > 0;
              return (
                <tr key={each.name}>
                  <th scope="row">{each.name}</th>
                  <td>{energy(sum.used)}</td>
                  <td><b>{known ? energy(sum.saved) : unknown}</b></td>
                  <td>{known ? percent(savedShare(sum), 1) : unknown}</td>
                  <td>{known ? `${energy(sum.low)} and ${energy(sum.high)}` : unknown}</td>
                  <td>{known ? times(sum.saved, price, currency) : unknown}</td>
                  <td>{known ? times(sum.saved, co2, "kg", 1000) : unknown}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <h2>By GPU, 30 days</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="savings by GPU">
        <table class="savings">
          <thead>
            <tr><th scope="col">GPU</th><th scope="col">used</th><th scope="col">saved</th><th scope="col">of</th></tr>
          </thead>
          <tbody>
            {[...savings.lines].sort((a, b) => (a.index ?? 1e9) - (b.index ?? 1e9)).map((line) => {
              const sum = savedSince(savings, 0, line.key);
              return (
                <tr key={line.key}>
                  <th scope="row">{line.index != null ? `GPU ${line.index}` : line.key}</th>
                  <td>{energy(sum.used)}</td>
                  <td>{sum.of > 0 ? energy(sum.saved) : unknown}</td>
                  <td>{sum.of > 0 ? percent(savedShare(sum), 1) : unknown}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <p class="dim">For other periods, prices by the hour, users and jobs: <code>derate savings</code>.</p>
    </>
  );
}
