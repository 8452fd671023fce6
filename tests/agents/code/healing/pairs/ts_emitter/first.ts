type Listener = (...values: unknown[]) => void;

export class Emitter {
  private readonly listeners = new Map<string, Listener[]>();

  on(name: string, listener: Listener): () => void {
    const known = this.listeners.get(name) ?? [];
    known.push(listener);
    this.listeners.set(name, known);
    return () => {
      known.splice(known.indexOf(listener), 1);
    };
  }

  emit(name: string, ...values: unknown[]): void {
    for (const listener of this.listeners.get(name) ?? []) listener(...values);
  }
}
