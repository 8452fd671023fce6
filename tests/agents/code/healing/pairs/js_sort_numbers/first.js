export function sortNumbers(numbers) {
  return [...numbers].sort();
}
