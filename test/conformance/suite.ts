import WebSocket from 'ws'
import type { Case } from './case.ts'
import { cases as everyCase } from './cases/index.ts'
import { Control, ControlFailure } from './control.ts'
import { Stage, type Target } from './stage.ts'

/** How one case ended. */
export interface Outcome {
  readonly case: Case
  readonly took_ms: number
  /** Why it failed; undefined when it passed. */
  readonly problem: Error | undefined
}

export interface SuiteOptions {
  /** Where the websocket is. */
  readonly ws_url: string
  /** Where the control API is. */
  readonly control_url: string
  /** For a control API that asks for one. */
  readonly operator_token?: string | undefined
  /** The cases to run; every one when absent. */
  readonly cases?: readonly Case[]
  /** Of the random inputs; random when absent. */
  readonly seed?: number
  /** Told of each case as it ends. */
  readonly on_outcome?: (outcome: Outcome) => void
}

export interface Summary {
  readonly outcomes: readonly Outcome[]
  readonly failed: number
  readonly took_ms: number
  readonly seed: number
}

/** The service cannot be tested: nothing listens, or control does not let us in. */
export class Unreachable extends Error {
  override readonly name = 'Unreachable'
}

/**
 * Runs the cases against a running service: those that wait for seconds beside each other and beside the rest, the rest
 * one by one. Throws Unreachable when there is no service to run them against.
 */
export async function runSuite(options: SuiteOptions): Promise<Summary> {
  const startedAt = performance.now()
  const target = await reach(options)
  const outcomes: Outcome[] = []
  const run = async (one: Case) => {
    const outcome = await runCase(one, target)
    outcomes.push(outcome)
    options.on_outcome?.(outcome)
  }
  const chosen = options.cases ?? everyCase
  const waiting = chosen.filter(({ kind }) => kind !== 'quick').map(run)
  for (const one of chosen) if (one.kind === 'quick') await run(one)
  await Promise.all(waiting)
  return {
    outcomes,
    failed: outcomes.filter(({ problem }) => problem).length,
    took_ms: performance.now() - startedAt,
    seed: target.seed,
  }
}

async function runCase(one: Case, target: Target): Promise<Outcome> {
  const startedAt = performance.now()
  const stage = new Stage(target)
  let problem: Error | undefined
  try {
    await one.run(stage)
    await stage.end()
  } catch (thrown) {
    problem = stage.abandon(thrown)
  }
  return { case: one, took_ms: performance.now() - startedAt, problem }
}

/** Looks for both addresses and makes a project for this run. */
async function reach(options: SuiteOptions): Promise<Target> {
  const { ws_url: wsUrl, control_url: controlUrl, operator_token: operatorToken } = options
  await listens(wsUrl)
  const control = new Control(controlUrl, operatorToken)
  try {
    const projectId = await control.createProject()
    return {
      ws_url: wsUrl,
      control,
      project_id: projectId,
      seed: options.seed ?? Math.floor(Math.random() * 2 ** 32),
    }
  } catch (problem) {
    if (!(problem instanceof ControlFailure)) throw problem
    const advice =
      problem.status === 401 || problem.status === 403
        ? 'name an operator token with --operator-token'
        : 'start the service with `npm start`, or name the control API with --control'
    throw new Unreachable(
      `no project can be made by the control API at ${controlUrl}; ${advice} (${problem.message})`,
    )
  }
}

async function listens(wsUrl: string): Promise<void> {
  const socket = new WebSocket(wsUrl, ['roomful.v1.json'], { handshakeTimeout: 5000 })
  await new Promise<void>((resolve, reject) => {
    socket.once('open', resolve)
    socket.once('error', (problem) =>
      reject(
        new Unreachable(
          `no websocket at ${wsUrl}; start the service with \`npm start\`, or name another address (${problem.message || 'connection refused'})`,
        ),
      ),
    )
  })
  socket.close(1000)
}
