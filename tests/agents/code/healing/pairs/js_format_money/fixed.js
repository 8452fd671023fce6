export function formatMoney(cents) {
  const sign = cents < 0 ? "-" : "";
  const all = Math.abs(cents);
  const dollars = Math.floor(all / 100);
  const rest = String(all % 100).padStart(2, "0");
  return `${sign}$${dollars.toString().replace(/\B(?=(\d{3})+$)/g, ",")}.${rest}`;
}
