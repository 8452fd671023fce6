export function sortNumbers(numbers) {
  return [...numbers].sort((a, b) => a - b);
}
