export function formatMoney(cents) {
  const dollars = Math.floor(cents / 100);
  const rest = String(Math.abs(cents % 100)).padStart(2, "0");
  return `$${dollars.toString().replace(/\B(?=(\d{3})+$)/g, ",")}.${rest}`;
}
