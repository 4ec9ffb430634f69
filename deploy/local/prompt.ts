import { createInterface, type Interface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'

interface PromptOptions {
  readonly input: Readable & { readonly isTTY?: boolean }
  readonly output: Writable & { readonly isTTY?: boolean }
  /** Called with each line, one after the other. */
  readonly onLine: (line: string) => Promise<void>
  /** Ctrl-C, or Ctrl-D, at a terminal. */
  readonly onInterrupt: () => void
}

/**
 * Lines from a terminal or a pipe, and text to it: at a terminal what is told goes above what is being typed. The end of a pipe is no
 * command: no one there wanted the end.
 */
export class Prompt {
  readonly #options: PromptOptions
  readonly #lines: Interface
  readonly #forPeople: boolean
  #work = Promise.resolve()
  #open = false
  #closed = false
  readonly #early: string[] = []

  constructor(options: PromptOptions) {
    const { input, output, onInterrupt } = options
    this.#options = options
    this.#forPeople = input.isTTY === true && output.isTTY === true
    this.#lines = createInterface({
      input,
      ...(this.#forPeople && { output }),
      terminal: this.#forPeople,
      prompt: 'roomful> ',
    })
    this.#lines.on('line', (line) => (this.#open ? this.#take(line) : void this.#early.push(line)))
    this.#lines.on('SIGINT', onInterrupt)
    this.#lines.on('close', () => {
      if (this.#forPeople && !this.#closed) onInterrupt()
    })
  }

  /** From now on lines are taken; those that came before are taken first. */
  open(): void {
    this.#open = true
    for (const line of this.#early.splice(0)) this.#take(line)
    this.#show()
  }

  /** Writes `text` and a line end. */
  tell(text: string): void {
    const { output } = this.#options
    if (!this.#forPeople || this.#closed) {
      output.write(`${text}\n`)
      return
    }
    // To the start of the line, and away with what is being typed; the prompt brings it back.
    output.write(`\r\x1b[K${text}\n`)
    this.#show()
  }

  /** Takes no more lines; text can still be told. */
  close(): void {
    this.#closed = true
    this.#lines.close()
    if (this.#forPeople) this.#options.output.write('\n')
  }

  #take(line: string): void {
    this.#work = this.#work.then(() => this.#options.onLine(line)).then(() => this.#show())
  }

  #show(): void {
    if (this.#forPeople && this.#open && !this.#closed) this.#lines.prompt(true)
  }
}
