import * as v from 'valibot'
import { idPattern } from './ids.ts'
import type { Bus } from './store/port.ts'

/** Channel for changes of keys and projects, and of the records of players. Every node receives them. */
const CHANNEL = 'keys'

const project_id = v.pipe(v.string(), v.regex(idPattern('prj')))

const News = v.union([
  v.object({
    project_id,
    /** Null: the project's built-in pair. */
    key_id: v.nullable(v.pipe(v.string(), v.regex(idPattern('key')))),
    status: v.picklist(['active', 'retiring', 'revoked']),
  }),
  v.object({
    project_id,
    /** The player whose record has changed. Nodes read it again: no one can ban a player by a message. */
    sub: v.string(),
  }),
  v.object({
    project_id,
    /** True: the project takes no players. */
    disabled: v.boolean(),
  }),
])

/** The status of a key or the record of a player has changed, or a project was disabled or enabled. */
type KeyNews = v.InferOutput<typeof News>

/** Tells every node; resolves with how many heard it. */
export const publishKeyNews = (bus: Bus, news: KeyNews): Promise<number> =>
  bus.publish(CHANNEL, new TextEncoder().encode(JSON.stringify(news)))

/**
 * Listens for changes of keys. `onGap`: some may have been missed. `onNonsense` gets what cannot be read. The returned function ends it.
 */
export const subscribeKeyNews = (
  bus: Bus,
  onNews: (news: KeyNews) => void,
  onGap: () => void,
  onNonsense: (error: unknown) => void,
): Promise<() => Promise<void>> =>
  bus.subscribe(
    CHANNEL,
    (message) => {
      let news: KeyNews
      try {
        news = v.parse(News, JSON.parse(new TextDecoder().decode(message)))
      } catch (error) {
        onNonsense(error)
        return
      }
      onNews(news)
    },
    onGap,
  )
