export function makeGrid<T>(rows: number, columns: number, value: T): T[][] {
  return new Array<T[]>(rows).fill(new Array<T>(columns).fill(value));
}
