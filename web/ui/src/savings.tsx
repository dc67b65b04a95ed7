// What was used and saved: today, this week, this month.
import { useState } from "preact/hooks";
import { AsOf } from "./as_of";
import { useAsked } from "./live";
import { Name } from "./name";
import type { Maybe, Savings, Setting } from "./types";
import { dayTime, energy, percent, unknown } from "./words";

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

/** "0,31" is 0.31. Undefined: no number, or one below 0. */
export function price(typed: string): number | undefined {
  const value = Number(typed.trim().replace(",", "."));
  return typed.trim() === "" || !Number.isFinite(value) || value < 0 ? undefined : value;
}

/** Three digits that tell something: 0.00124, 1.24, 124. */
const digits = (value: number) =>
  value.toLocaleString("en", { maximumSignificantDigits: Math.abs(value) >= 1000 ? 6 : 3 });

function money(joules: Maybe<number>, each: number | undefined, currency: string): string {
  if (joules == null || each === undefined) return unknown;
  return `${digits((joules / 3.6e6) * each)} ${currency}`;
}
function mass(joules: Maybe<number>, each: number | undefined): string {
  if (joules == null || each === undefined) return unknown;
  const grams = (joules / 3.6e6) * each;
  return Math.abs(grams) >= 1000 ? `${digits(grams / 1000)} kg` : `${digits(grams)} g`;
}

const path = (days: number) => `savings?by=gpu&from=${encodeURIComponent("@" + midnight(days - 1))}`;

function PriceField({ label, typed, set }: { label: string; typed: string; set: (value: string) => void }) {
  const wrong = typed.trim() !== "" && price(typed) === undefined;
  return (
    <label>
      {label} <input inputMode="decimal" size={6} value={typed} aria-invalid={wrong} onInput={(e) => set(e.currentTarget.value)} />
      {wrong && <span class="bad"> not a price</span>}
    </label>
  );
}

export function SavingsView() {
  const settings = useAsked<{ settings: Setting[] }>("config-show", 60_000).value?.settings;
  const [priceTyped, setPrice] = useSetting(settings, "price_per_kwh");
  const [currency, setCurrency] = useSetting(settings, "currency");
  const [co2Typed, setCo2] = useSetting(settings, "co2_g_per_kwh");
  const periods = kDays.map((each) => useAsked<Savings>(path(each.days), 60_000));
  const month = periods[kDays.length - 1]!;
  if (month.error && !month.value) return <p class="empty">{month.error.message}</p>;
  if (!month.value) return <p class="empty">Reading the history…</p>;
  const savings = month.value;
  const each = price(priceTyped), grams = price(co2Typed);
  return (
    <>
      <h1>Savings</h1>
      <AsOf live={month} />
      <p class="dim">
        Estimated by each policy's own curves, against the highest clock; 90 % sure between the two
        ends. "Of all" is saved / (used + saved): energy that was only observed has saved nothing. Energy is of GPU
        boards only, without processors, memory and cooling.{" "}
        {savings.first_unix_seconds ? `Kept since ${dayTime(savings.first_unix_seconds)}.` : ""}
      </p>
      <form class="prices" onSubmit={(event) => event.preventDefault()}>
        <PriceField label="Price of a kWh" typed={priceTyped} set={setPrice} />
        <label>Currency <input size={5} value={currency} onInput={(e) => setCurrency(e.currentTarget.value)} /></label>
        <PriceField label="g of CO₂ a kWh" typed={co2Typed} set={setCo2} />
      </form>
      <div class="scroll" tabIndex={0} role="region" aria-label="savings">
        <table class="savings">
          <thead>
            <tr>
              <th scope="col">time</th><th scope="col">known for</th><th scope="col">used</th>
              <th scope="col">saved</th><th scope="col">of all</th><th scope="col">90 % sure between</th>
              <th scope="col">of governed</th><th scope="col">money saved</th><th scope="col">CO₂ saved</th>
            </tr>
          </thead>
          <tbody>
            {kDays.map((period, i) => {
              const told = periods[i]!.value, sum = told?.total;
              return (
                <tr key={period.name}>
                  <th scope="row">{period.name}</th>
                  <td>{percent(told?.known_ratio, 1)}</td>
                  <td>{energy(sum?.energy_joules)}</td>
                  <td><b>{energy(sum?.saved_joules)}</b></td>
                  <td>{percent(sum?.energy_saving_ratio, 1)}</td>
                  <td>{sum?.saved_low_joules != null ? `${energy(sum.saved_low_joules)} and ${energy(sum.saved_high_joules)}` : unknown}</td>
                  <td>{energy(sum?.governed_joules)}</td>
                  <td>{money(sum?.saved_joules, each, currency)}</td>
                  <td>{mass(sum?.saved_joules, grams)}</td>
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
            <tr>
              <th scope="col">GPU</th><th scope="col">used</th><th scope="col">saved</th><th scope="col">of all</th>
              <th scope="col">of governed</th>
            </tr>
          </thead>
          <tbody>
            {[...savings.lines].sort((a, b) => (a.index ?? 1e9) - (b.index ?? 1e9)).map((line) => (
              <tr key={line.key}>
                <th scope="row">{line.index != null ? `GPU ${line.index}` : <Name of={line.key} />}</th>
                <td>{energy(line.sum.energy_joules)}</td>
                <td>{energy(line.sum.saved_joules)}</td>
                <td>{percent(line.sum.energy_saving_ratio, 1)}</td>
                <td>{energy(line.sum.governed_joules)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="dim">For other periods, prices by the hour, users and jobs: <code>derate savings</code>.</p>
    </>
  );
}
