import { type ChildProcess, fork } from 'node:child_process'

/** Time that an order may take beyond its seconds. After it, the process counts as hanging. */
const SPARE_SECONDS = 60

/** Another process of this script that carries out orders, so that their work does not slow down the measurements of this process. */
export class OtherProcess<Order extends { readonly seconds: number }, Outcome> {
  readonly #child: ChildProcess

  /** Starts the process. `script` calls `carryOutOrders` where `process.send` is defined. */
  constructor(script: string) {
    this.#child = fork(script, { execArgv: ['--import', 'tsx'] })
  }

  /** Resolves with the outcome of an order. Rejects when the process ends, or takes a minute longer than the order says. */
  carryOut(order: Order): Promise<Outcome> {
    const child = this.#child
    return new Promise((resolve, reject) => {
      const broken = (): void =>
        reject(new Error(`the other process did not finish ${JSON.stringify(order).slice(0, 200)}`))
      const timer = setTimeout(broken, (order.seconds + SPARE_SECONDS) * 1000)
      child.once('exit', broken)
      child.once('message', (outcome: Outcome) => {
        clearTimeout(timer)
        child.off('exit', broken)
        resolve(outcome)
      })
      child.send(order)
    })
  }

  end(): void {
    this.#child.kill('SIGKILL')
  }
}

/** Carries out the orders of the parent process, and ends with it. */
export function carryOutOrders<Order, Outcome>(carryOut: (order: Order) => Promise<Outcome>): void {
  process.on('message', (order: Order) => {
    void carryOut(order).then((outcome) => process.send?.(outcome))
  })
  process.once('disconnect', () => process.exit(0))
}
