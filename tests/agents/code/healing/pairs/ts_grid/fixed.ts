export function makeGrid<T>(rows: number, columns: number, value: T): T[][] {
  return Array.from({ length: rows }, () => new Array<T>(columns).fill(value));
}
