import type { Clock } from '../../shared/clock.ts'

/** How long a service may take for an answer, before who waits for it gives up. */
const ANSWER_SECONDS = 30

/** Waits for an answer. `late` is called, with how long that was, when none has come for so long that none will. */
export async function patiently<T>(
  clock: Clock,
  answer: Promise<T>,
  late: (within: string) => void,
): Promise<T> {
  const cancel = clock.schedule(ANSWER_SECONDS * 1000, () => late(`within ${ANSWER_SECONDS} s`))
  try {
    return await answer
  } finally {
    cancel()
  }
}
