import * as v from 'valibot'
import { idPattern } from './ids.ts'
import type { Bus } from './store/port.ts'

/** Channel for changes of keys, projects and player records. Every node receives them. */
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
    /** Player whose record has changed. Nodes read the record again, so a message alone cannot ban a player. */
    sub: v.string(),
  }),
  v.object({
    project_id,
    /** True: the project accepts no players. */
    disabled: v.boolean(),
  }),
])

/** A change of a key's status, of a player's record, or of a project (disabled or enabled). */
type KeyNews = v.InferOutput<typeof News>

/** Notifies every node. Resolves with the number of receivers. */
export const publishKeyNews = (bus: Bus, news: KeyNews): Promise<number> =>
  bus.publish(CHANNEL, new TextEncoder().encode(JSON.stringify(news)))

/**
 * Listens for changes. `onGap`: messages may have been missed. `onNonsense` receives unreadable messages. The returned function stops it.
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
