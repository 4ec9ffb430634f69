import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { CpuSample } from './cpu-report.ts'

/** Whether processes can be tied to a core here (Linux with util-linux). */
export const canPin = (): boolean => spawnSync('taskset', ['-p', String(process.pid)]).status === 0

/** A server in a process of its own, whose CPU time can be read at any moment. */
export class ServerUnderTest {
  readonly port: number
  readonly #child: ChildProcess
  #sample = 0

  private constructor(child: ChildProcess, port: number) {
    this.#child = child
    this.port = port
  }

  /** Starts `module` (a TypeScript file beside this one), tied to core 0 when that is possible. */
  static async start(module: string, env: Record<string, string> = {}): Promise<ServerUnderTest> {
    const command = [process.execPath, '--import', 'tsx', fileURLToPath(new URL(module, import.meta.url))]
    if (canPin()) command.unshift('taskset', '-c', '0')
    const child = spawn(command[0]!, command.slice(1), {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      env: { ...process.env, NODE_ENV: 'production', ...env },
    })
    const [message] = (await Promise.race([
      once(child, 'message'),
      once(child, 'exit').then(([code]) => Promise.reject(new Error(`${module} exited with ${code}`))),
    ])) as [{ ready: number }]
    return new ServerUnderTest(child, message.ready)
  }

  /** The bytes of each broadcast (baseline only). */
  payload(bytes: number): void {
    this.#child.send({ payload: bytes })
  }

  sample(): Promise<CpuSample> {
    this.#sample += 1
    const id = this.#sample
    return new Promise((resolve) => {
      const listen = (answer: CpuSample & { sample: number }) => {
        if (answer.sample !== id) return
        this.#child.off('message', listen)
        resolve(answer)
      }
      this.#child.on('message', listen)
      this.#child.send({ sample: id })
    })
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null) return
    const gone = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await gone
  }
}
